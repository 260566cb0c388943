//! How one election is decided: each step is a file and a function, and `Controller::decide` calls them in order.

mod accept;
mod desire;
mod execute;
mod follow;
mod metadata;
mod report;
mod step;
mod withdraw;

pub(super) use self::accept::accept;
pub(super) use self::desire::{Circumstances, desire};
pub(super) use self::execute::execute;
pub(super) use self::follow::follow;
pub(super) use self::report::report;
pub(super) use self::step::step;
pub(super) use self::withdraw::withdraw;
