//! The rules of the protocol, with their ids in docs/protocol.md, each of which can be switched off by tampering with what passes
//! between the core and the world; and what was seen of a model, to know that it gets anywhere.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// H4: candidates that show no leader are stamped, and between clusters (C4) the pod of a promotion that is outstanding when the
    /// lock is lost; off: that is answered and not done.
    Stamps,
    /// H3: a write is for one version of a pod; off: the API server does not look at it.
    PodVersions,
    /// H3: a write is for one pod and not for its name; off: the API server does not look at the uid.
    PodUids,
    /// H1: the record is written by compare-and-swap; off: whoever comes last has it.
    CompareAndSwap,
    /// H1: the record is written before anybody is promoted; off: it is answered and not done yet.
    RecordFirst,
    /// H2: others are demoted before; off: the promotion is sent first.
    DemoteFirst,
    /// H2: what is demoted is awaited; off: it is answered and not done yet.
    DemotionAwaited,
    /// H2: who the replaced record named, is demoted whatever the cache shows; off: only if it shows a leader there.
    PreviousDemoted,
    /// H3, R1: after a conflict the record is read again; off: it is taken from the cache.
    Confirmation,
    /// H4: candidates are listed afresh; off: they are taken from the cache.
    FreshPods,
    /// H2, in the controller: what was read or written is shown before the outcome is taken; off: only the watch tells.
    AnswersShown,
    /// E1: the end of the former leader is known before another pod leads; off: a pod that is deleted is shown as ended.
    EndsFirst,
    /// R1: a write is for one version of a slice; off: the API server does not look at it.
    SliceVersions,
    /// C2: what is held is relied on only up to a margin before its end; off: up to its end.
    Margin,
    /// C1, B1: a lock validity counts from when a renewal was sent; off: from its answer.
    FromSending,
    /// B2: another cluster's session is ended after the whole of its TTL; off: after half of it.
    WholeTtl,
    /// B3: a session is ended before its locks are taken; off: they are taken when it is late.
    EndsBeforeTaking,
    /// B4: a lock's holder is judged by a session that was read after the lock; off: by one that was read at any time.
    SessionAfterLock,
    /// C4, in the controller: nobody is promoted after the lock validity under which that was decided; off: whenever its turn comes.
    SentWhileValid,
    /// W5: a holder's record says for how long its workloads may take to end; off: others do not see that.
    Published,
    /// What the C rules assume: a request that has not reached its API server in time never will; off: it may at any time.
    PromptOrNever,
}

/// What is worth counting.
#[derive(Clone, Copy)]
pub enum Counted {
    /// A promotion was refused: its pod had changed.
    RefusedPromotion,
    /// A promotion was done for which nobody waited any more.
    LatePromotion,
    /// The second operator took over from the first.
    TakenOver,
    /// A record had another version than its writer thought.
    Conflict,
    /// Nothing was left to do.
    Quiet,
    /// The first cluster wrote the record.
    Written,
    /// A write to a slice was refused: the slice had changed.
    RefusedSwitch,
    /// A slice was written for which nobody waited any more.
    LateSwitch,
    /// A lock was let go of.
    Released,
    /// A lock was lost with its session.
    Expired,
    /// A promotion was not sent, since the lock validity was over.
    TooLate,
}

pub const COUNTED: [(Counted, &str); 11] = [
    (Counted::RefusedPromotion, "promotions refused"),
    (Counted::LatePromotion, "promotions done that nobody waited for"),
    (Counted::TakenOver, "records written by the second"),
    (Counted::Conflict, "compare-and-swaps refused"),
    (Counted::Quiet, "quiet states"),
    (Counted::Written, "records written by the first cluster"),
    (Counted::RefusedSwitch, "switches refused"),
    (Counted::LateSwitch, "switches done that nobody waited for"),
    (Counted::Released, "locks let go of"),
    (Counted::Expired, "locks lost with their session"),
    (Counted::TooLate, "promotions not sent, because the lock was not valid any more"),
];

/// How often.
#[derive(Debug, Default)]
pub struct Seen {
    counts: [AtomicUsize; COUNTED.len()],
    found: AtomicBool,
}

impl Seen {
    pub fn count(&self, what: Counted) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self, what: Counted) -> usize {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// A broken promise was found; returns whether another one was before. The first one that is found has the shortest history.
    pub fn found(&self) -> bool {
        self.found.swap(true, Ordering::Relaxed)
    }

    /// Then nothing else is looked for.
    pub fn is_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }
}
