//! Everything that users meet, on a real control plane: API server, etcd, scheduler and controllers are the real ones, nodes are
//! simulated by kwok. One control plane serves all tests of this binary, each in a namespace of its own with operators of its own.

mod elections;
mod support;
