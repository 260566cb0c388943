//! The subcommands for users of elections, with their own rights: `kubectl lictor …`.

mod access;
mod acting;
mod changes;
mod check;
mod complete;
mod dashboard;
mod doctor;
mod explain;
mod format;
mod history;
mod list;
mod outlook;
mod paint;
mod pause;
mod presence;
mod reading;
mod report;
mod screen;
mod status;
mod switchover;
mod watch;
mod who;

pub(super) use check::Check;
pub(super) use complete::complete_for;
pub(super) use dashboard::Dashboard;
pub(super) use doctor::Doctor;
pub(super) use explain::Explain;
pub(super) use history::History;
pub(super) use list::List;
pub(super) use pause::{Pause, Resume};
pub(super) use report::Report;
pub(super) use status::Status;
pub(super) use switchover::Switchover;
pub(super) use watch::Watch;
pub(super) use who::Who;
