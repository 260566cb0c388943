//! The claim that one process at a time holds, whatever store keeps it. One replica of the operator acts by it, and one `lictor agent` runs
//! its command by it. [`lictor_core::Claim`] has the rules, and a [`ClaimStore`] reads and writes what the store has of the claim.

mod holder;
mod keeper;
mod lock;
mod store;
mod terms;

pub use holder::Holder;
pub(crate) use keeper::ClaimKeeper;
pub use keeper::ClaimUpdate;
pub(crate) use lock::start;
pub(crate) use store::{ClaimStore, Claimed, News, Unwritten, Write, polls};
pub(crate) use terms::follow;
