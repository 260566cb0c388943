//! What is promised of commands, looked at from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::Term;

use crate::log::Log;

/// Within how many milliseconds a command that was stopped with everything else is killed when it goes on.
const THAW: u64 = 50;
/// How much later than its lock's end a command may end: timers have milliseconds, and clocks run up to half a hundredth faster than
/// they do, for a nap of a second.
const LATE: Duration = Duration::from_millis(20);

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Commands that began.
    pub begun: u64,
    /// How often a command was stopped with everything else.
    pub frozen: u64,
    /// How often a watchdog found something to kill at a deadline.
    pub by_watchdogs: u64,
    /// How often somebody yielded.
    pub yields: u64,
}

struct Life {
    term: Term,
    frozen: bool,
    /// It went on then, and is not judged before this moment.
    judged_from: u64,
}

pub struct Judge {
    log: Log,
    /// The commands that live, by their places.
    lives: BTreeMap<usize, Life>,
    highest: Term,
    pub verdict: Option<String>,
    pub figures: Figures,
}

impl Judge {
    pub fn new(log: Log) -> Self {
        Self { log, lives: BTreeMap::new(), highest: Term::default(), verdict: None, figures: Figures::default() }
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        if self.verdict.is_none() {
            let why = why();
            self.log.note(|| format!("!!! {why}"));
            self.verdict = Some(why);
        }
    }

    pub fn begins(&mut self, place: usize, term: Term) {
        self.log.note(|| format!("the command of c{place} begins in term {term}"));
        self.figures.begun += 1;
        let highest = self.highest;
        if term <= highest {
            self.fail(|| format!("terms do not rise: c{place} begins in term {term} after term {highest}"));
        }
        self.highest = highest.max(term);
        self.lives.insert(place, Life { term, frozen: false, judged_from: 0 });
        self.compare();
    }

    /// All of a command is gone, so much later than its lock.
    pub fn ends(&mut self, place: usize, late: Duration) {
        let judged = self.judged().any(|(judged, _)| judged == place);
        self.lives.remove(&place);
        if judged {
            self.outlives(place, late);
        }
    }

    /// A command that can do something has outlived its lock by so much.
    pub fn outlives(&mut self, place: usize, late: Duration) {
        if late > LATE && self.lives.get(&place).is_none_or(|life| life.judged_from <= self.log.now()) {
            self.fail(|| format!("a command outlives its lock: that of c{place}, by {late:?}"));
        }
    }

    pub fn freeze(&mut self, place: usize, frozen: bool) {
        let now = self.log.now();
        let Some(life) = self.lives.get_mut(&place) else { return };
        if life.frozen == frozen {
            return;
        }
        (life.frozen, life.judged_from) = (frozen, now + THAW);
        self.figures.frozen += u64::from(frozen);
    }

    fn judged(&self) -> impl Iterator<Item = (usize, Term)> {
        let now = self.log.now();
        let judged = move |life: &Life| !life.frozen && life.judged_from <= now;
        self.lives.iter().filter(move |(_, life)| judged(life)).map(|(place, life)| (*place, life.term))
    }

    /// Time has passed.
    pub fn compare(&mut self) {
        let lives: Vec<_> = self.judged().map(|(place, term)| format!("c{place}'s in term {term}")).collect();
        if lives.len() > 1 {
            self.fail(|| format!("two commands live at once: {}", lives.join(", ")));
        }
    }

    /// The store says that this candidate holds the lock.
    pub fn held_by(&mut self, holder: usize) {
        let other = self.judged().find(|(place, _)| *place != holder);
        if let Some((place, term)) = other {
            self.fail(|| format!("a command has no lock: that of c{place} in term {term}, and c{holder} holds it"));
        }
    }
}
