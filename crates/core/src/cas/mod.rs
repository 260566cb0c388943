//! Sessions in a store whose only means is to replace an object that has not changed: the B rules of docs/protocol.md.
//!
//! Each cluster has one object, its session, and renews it by replacing it. A lock's object names the session that holds it. The store has no
//! clock, so the others end a session that nobody has renewed: [`CasSession`] decides for the owner, [`SessionWatch`] for the others. Whoever
//! carries that out keeps B6 and B7.

mod object;
mod owner;
mod watch;

pub use object::{LockSession, ObjectTag, SessionObject};
pub use owner::{CasCommand, CasSession, SessionWrite};
pub use watch::{SessionEnd, SessionWatch};
