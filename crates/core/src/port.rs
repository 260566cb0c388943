//! Ports of pods, and how others name them.

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The port's name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port's number.
    pub number: u16,
}

/// A port of a pod, as a Service or a probe names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// The port's number.
    Number(u16),
    /// The name that a container gives the port.
    Name(String),
}
