//! The decision about one election. Each step is a function in its own file, and `Controller::decide` calls them in order. A replica that
//! does not act takes only the step of `step_aside`.

mod accept;
mod desire;
mod execute;
mod follow;
mod keep_service;
mod metadata;
mod remark;
mod report;
mod step;
mod step_aside;
mod switch;
mod withdraw;

pub(super) use self::accept::accept;
pub(super) use self::desire::{Circumstances, Sources, desire};
pub(super) use self::execute::execute;
pub(super) use self::follow::follow;
pub(super) use self::keep_service::keep_service;
pub(super) use self::report::report;
pub(super) use self::step::step;
pub(super) use self::step_aside::step_aside;
pub(super) use self::switch::{gather, refuse_all, settle};
pub(super) use self::withdraw::withdraw;
