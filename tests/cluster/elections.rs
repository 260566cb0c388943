//! Which pod leads, and how the leadership moves.

mod choice;
mod connection;
mod deletion;
mod deletion_cost;
mod drift;
mod failover;
mod former;
mod nodes;
mod ownership;
mod probe;
mod rollout;
mod spec;
