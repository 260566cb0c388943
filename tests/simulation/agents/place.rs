//! The processes of one candidate: a watchdog, a guard, an agent, its command, and what that leaves behind. The loops of the first three are
//! the real ones.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lictor_agent::{Guarded, Handle, Processes, guard, live, requests};
use lictor_core::{AgentEvent, AgentTiming, Instant, Term, Watchdog};
use lictor_locks::Lock;
use lictor_process::{Process, spawn_in};
use lictor_testing::Prng;
use tokio::sync::watch;
use tokio::time::sleep;

use super::judge::Judge;
use crate::log::Log;
use crate::process::Simulated;

/// The exit code of what was killed.
const KILLED: u8 = 137;
/// The exit code of what ended on SIGTERM.
const TERMINATED: u8 = 143;
/// Within how many milliseconds the process that becomes the command gets there.
const GATE: usize = 30;
/// Within how many milliseconds a command ends that was asked to.
const OBEYS: usize = 400;

/// The numbers of a watchdog and of a guard, where there are two of something.
const WATCHDOG: usize = 0;
const GUARD: usize = 1;

/// A part of what runs in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Agent,
    Watchdog,
    Guard,
    /// The agent and the watchdog, as by their name, and not the guard and the command.
    Both,
    /// The container with everything in it.
    All,
}

/// A machine, or a pod, with a candidate.
pub struct Place {
    pub number: usize,
    begun: tokio::time::Instant,
    rate: u32,
    /// The machine's clock.
    clock: Arc<Simulated>,
    table: Mutex<Table>,
    changes: watch::Sender<u64>,
    judge: Arc<Mutex<Judge>>,
    prng: Mutex<Prng>,
    log: Log,
}

/// The processes, and what is on its way between them.
#[derive(Default)]
struct Table {
    watchdog: Option<Arc<Simulated>>,
    guard: Option<Arc<Simulated>>,
    agent: Option<Arc<Simulated>>,
    command: Option<Command>,
    commands: u64,
    /// What the agent has told the watchdog and the guard, and they have not read.
    told: [Vec<Option<Instant>>; 2],
    /// The exit codes of the guard and of the agent, until the watchdog and the guard hear them.
    ended: [Option<u8>; 2],
    /// SIGTERM to the watchdog, to the guard, and to the agent.
    signals: [bool; 3],
    /// How many times each part is stopped.
    stops: [u32; 5],
    handle: Option<Handle>,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Command {
    number: u64,
    term: Term,
    /// Until when it may live, as the agent told the watchdog last.
    until: Instant,
    /// It is past the gate.
    begun: bool,
    /// Its own process lives.
    own: bool,
    /// A daemon lives that it has started.
    left: bool,
    /// Its exit code, until the agent hears it.
    code: Option<u8>,
    heard: bool,
    /// It does not care for SIGTERM.
    stubborn: bool,
}

impl Command {
    fn lives(&self) -> bool {
        self.own || self.left
    }
}

impl Place {
    pub fn new(
        number: usize,
        rate: u32,
        seed: u64,
        judge: Arc<Mutex<Judge>>,
        log: Log,
        begun: tokio::time::Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            begun,
            rate,
            clock: Simulated::new(rate, begun),
            table: Mutex::default(),
            changes: watch::channel(0).0,
            judge,
            prng: Mutex::new(Prng::new(seed)),
            log,
        })
    }

    /// Starts a watchdog and an agent. Nothing else may live here (A5).
    pub fn start(self: &Arc<Self>, timing: AgentTiming, lock: impl FnMut() -> Lock + Send + 'static) {
        assert!(self.is_free());
        let process = || Simulated::new(self.rate, self.begun);
        let (watchdog, guardian, agent) = (process(), process(), process());
        let (requests, handle) = requests();
        {
            let mut table = self.table();
            let commands = table.commands;
            *table = Table {
                watchdog: Some(watchdog.clone()),
                guard: Some(guardian.clone()),
                agent: Some(agent.clone()),
                commands,
                handle: Some(handle),
                ..Table::default()
            };
        }
        self.log.note(|| format!("c{} starts", self.number));
        let place = self.clone();
        spawn_in(&(watchdog as Arc<dyn Process>), async move {
            let code = guard(Below { place: place.clone(), which: WATCHDOG }).await.unwrap();
            place.log.note(|| format!("the watchdog of c{} ends with {code}", place.number));
            place.table().watchdog = None;
            place.changed();
        });
        let place = self.clone();
        spawn_in(&(guardian as Arc<dyn Process>), async move {
            let code = guard(Below { place: place.clone(), which: GUARD }).await.unwrap();
            place.log.note(|| format!("the guard of c{} ends with {code}", place.number));
            place.guard_ended(code);
        });
        let place = self.clone();
        spawn_in(&(agent as Arc<dyn Process>), async move {
            let chain = Chain { place: place.clone(), orphaned: false };
            let code = live(timing, chain, lock, requests).await;
            place.log.note(|| format!("the agent of c{} ends with {code}", place.number));
            place.agent_ended(code);
        });
        self.changed();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap()
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Waits until something may have changed.
    async fn until<T>(&self, mut look: impl FnMut(&mut Table) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(found) = look(&mut self.table()) {
                return found;
            }
            let _ = changes.changed().await;
        }
    }

    /// Waits until the name of the last agent here is given back: nothing of it lives.
    pub async fn free(&self) {
        self.until(|table| table.is_free().then_some(())).await;
    }

    fn is_free(&self) -> bool {
        self.table().is_free()
    }

    /// How to ask the agent, if one runs.
    pub fn handle(&self) -> Option<Handle> {
        let table = self.table();
        table.handle.clone().filter(|_| table.agent.is_some())
    }

    /// The term of the command that lives here and can do something.
    pub fn acts(&self) -> Option<Term> {
        let table = self.table();
        let command = table.command.as_ref().filter(|command| command.begun && command.lives())?;
        (!table.is_frozen()).then_some(command.term)
    }

    /// By how much a command that can do something has outlived its lock.
    pub fn overdue(&self) -> Option<Duration> {
        let table = self.table();
        let command = table.command.as_ref().filter(|command| command.begun && command.lives())?;
        (!table.is_frozen()).then(|| self.clock.monotonic().since(command.until))
    }

    fn below(&self, limit: usize) -> Duration {
        Duration::from_millis(u64::try_from(self.prng.lock().unwrap().below(limit)).unwrap_or(0))
    }

    // What goes wrong

    /// As SIGKILL. Who is killed was not stopped: nobody promises anything for a daemon of an agent that is killed while its watchdog
    /// is stopped.
    pub fn kill(&self, part: Part) {
        self.go_on();
        self.log.note(|| format!("{part:?} of c{} is killed", self.number));
        if matches!(part, Part::Watchdog | Part::Both | Part::All) {
            let watchdog = self.table().watchdog.take();
            if let Some(watchdog) = watchdog {
                watchdog.kill();
            }
        }
        if matches!(part, Part::Guard | Part::All) {
            self.guard_ended(KILLED);
        }
        if matches!(part, Part::Agent | Part::Both | Part::All) {
            self.agent_ended(KILLED);
        }
        if part == Part::All {
            self.die(KILLED);
        }
        self.changed();
    }

    /// As SIGSTOP, or SIGCONT. Whoever stops the agent, its watchdog and its guard stops the command, too: nobody promises anything for one
    /// that runs while all three are stopped.
    pub fn stop(&self, part: Part, begins: bool) {
        let frozen = {
            let mut table = self.table();
            let stops = &mut table.stops[part as usize];
            *stops = if begins { *stops + 1 } else { stops.saturating_sub(1) };
            table.apply_stops();
            table.is_frozen()
        };
        self.log.note(|| format!("{part:?} of c{} {}", self.number, if begins { "is stopped" } else { "goes on" }));
        self.judge.lock().unwrap().freeze(self.number, frozen);
        self.changed();
    }

    /// As SIGCONT to everything.
    pub fn go_on(&self) {
        {
            let mut table = self.table();
            table.stops = [0; 5];
            table.apply_stops();
        }
        self.judge.lock().unwrap().freeze(self.number, false);
        self.changed();
    }

    /// As SIGTERM to the watchdog.
    pub fn terminate(&self) {
        self.log.note(|| format!("c{} is asked to end", self.number));
        self.table().signals[0] = true;
        self.changed();
    }

    /// The command ends by itself.
    pub fn command_ends(&self, code: u8) {
        let number = self.table().command.as_ref().map(|command| command.number);
        if let Some(number) = number {
            self.own_ends(number, code);
        }
    }

    // What processes do

    fn guard_ended(&self, code: u8) {
        let guard = {
            let mut table = self.table();
            let guard = table.guard.take();
            if guard.is_some() {
                table.ended[WATCHDOG] = Some(code);
            }
            guard
        };
        self.changed();
        if let Some(guard) = guard {
            guard.kill();
        }
    }

    fn agent_ended(&self, code: u8) {
        let agent = {
            let mut table = self.table();
            let agent = table.agent.take();
            if agent.is_some() {
                table.ended[GUARD] = Some(code);
            }
            agent
        };
        if agent.is_none() {
            return;
        }
        // The kernel kills the command itself. A daemon is the watchdog's to kill.
        let number = self.table().command.as_ref().map(|command| command.number);
        if let Some(number) = number {
            self.own_ends(number, KILLED);
        }
        self.changed();
        if let Some(agent) = agent {
            agent.kill();
        }
    }

    fn own_ends(&self, number: u64, code: u8) {
        self.change(number, |command| {
            if std::mem::replace(&mut command.own, false) {
                command.code = Some(code);
            }
        });
    }

    /// Kills the command and all that comes from it. Returns how many processes there were.
    fn die(&self, code: u8) -> usize {
        let found = self.table().command.as_ref().map(|command| {
            let processes = usize::from(command.own) + usize::from(command.left);
            (command.number, processes)
        });
        let Some((number, processes)) = found else { return 0 };
        self.own_ends(number, code);
        self.change(number, |command| command.left = false);
        processes
    }

    /// Changes what lives of a command, if it is still that one.
    fn change(&self, number: u64, change: impl FnOnce(&mut Command)) {
        let mut table = self.table();
        let Some(command) = table.command.as_mut().filter(|command| command.number == number) else { return };
        let before = command.begun && command.lives();
        change(command);
        let after = command.begun && command.lives();
        let (lives, until) = (command.lives(), command.until);
        if !lives && table.agent.is_none() {
            table.command = None;
        }
        drop(table);
        if before && !after {
            self.log.note(|| format!("the command of c{} is gone", self.number));
            let late = self.clock.monotonic().since(until);
            self.judge.lock().unwrap().ends(self.number, late);
        }
        self.changed();
    }

    /// The process that is about to become the command.
    async fn gate(self: Arc<Self>, number: u64) {
        sleep(self.below(GATE)).await;
        self.until(|table| (!table.is_frozen()).then_some(())).await;
        let begins = {
            let mut table = self.table();
            let agent = table.agent.is_some();
            let Some(command) = table.command.as_mut().filter(|command| command.number == number && command.own) else {
                return;
            };
            // A1: as crates/agent/src/gate.rs has it.
            command.begun = agent && self.clock.monotonic() < command.until;
            command.begun.then_some(command.term)
        };
        if let Some(term) = begins {
            self.judge.lock().unwrap().begins(self.number, term);
        } else {
            self.change(number, |command| command.left = false);
            self.own_ends(number, KILLED);
        }
    }

    /// The command has got SIGTERM, or what it has left behind.
    async fn obey(self: Arc<Self>, number: u64, own: bool) {
        sleep(self.below(OBEYS)).await;
        self.until(|table| (!table.is_frozen()).then_some(())).await;
        if own {
            self.own_ends(number, TERMINATED);
        } else {
            self.change(number, |command| command.left = false);
        }
    }
}

impl Table {
    fn is_free(&self) -> bool {
        self.watchdog.is_none() && self.guard.is_none() && self.agent.is_none() && self.command.is_none()
    }

    /// Whether the command is stopped.
    fn is_frozen(&self) -> bool {
        let [agent, watchdog, guard] = self.stopped();
        agent && watchdog && guard
    }

    /// Whether the agent, the watchdog and the guard are stopped.
    fn stopped(&self) -> [bool; 3] {
        let [agent, watchdog, guard, both, all] = self.stops;
        [agent + both + all > 0, watchdog + both + all > 0, guard + all > 0]
    }

    fn apply_stops(&self) {
        for (process, stopped) in [&self.agent, &self.watchdog, &self.guard].into_iter().zip(self.stopped()) {
            let Some(process) = process else { continue };
            if stopped { process.stop() } else { process.go_on() }
        }
    }
}

/// What an agent does with the processes of its place.
struct Chain {
    place: Arc<Place>,
    orphaned: bool,
}

impl Processes for Chain {
    fn guard(&mut self, until: Option<Instant>) {
        {
            let mut table = self.place.table();
            table.told.iter_mut().for_each(|told| told.push(until));
            if let (Some(command), Some(until)) = (&mut table.command, until) {
                command.until = until;
            }
        }
        self.place.changed();
    }

    fn start(&mut self, term: Term, until: Instant) -> io::Result<()> {
        let left = self.place.prng.lock().unwrap().percent(40);
        let stubborn = self.place.prng.lock().unwrap().percent(30);
        let number = {
            let mut table = self.place.table();
            assert!(table.command.is_none(), "one at a time");
            table.commands += 1;
            let number = table.commands;
            let (begun, own, code, heard) = (false, true, None, false);
            table.command = Some(Command { number, term, until, begun, own, left, code, heard, stubborn });
            number
        };
        // Not a task of the agent's process: it goes on while that one is stopped.
        tokio::spawn(self.place.clone().gate(number));
        Ok(())
    }

    fn terminate(&mut self) {
        let asked = {
            let table = self.place.table();
            let command = table.command.as_ref().filter(|command| !command.stubborn || !command.begun);
            command.map(|command| (command.number, command.own))
        };
        if let Some((number, own)) = asked {
            tokio::spawn(self.place.clone().obey(number, own));
        }
    }

    fn kill(&mut self) {
        self.place.die(KILLED);
    }

    async fn hear(&mut self) -> Vec<AgentEvent> {
        let orphaned = &mut self.orphaned;
        let look = |table: &mut Table| {
            if (table.watchdog.is_none() || table.guard.is_none()) && !std::mem::replace(orphaned, true) {
                return Some(vec![AgentEvent::Orphaned]);
            }
            if std::mem::take(&mut table.signals[2]) {
                return Some(vec![AgentEvent::Stop]);
            }
            let news = |command: &Command| command.code.is_some() || command.heard && !command.left;
            table.command.as_ref().is_some_and(news).then(Vec::new)
        };
        self.place.until(look).await
    }

    fn look(&mut self) -> Vec<AgentEvent> {
        let mut table = self.place.table();
        let mut events = vec![];
        let Some(command) = &mut table.command else { return events };
        if let Some(code) = command.code.take() {
            command.heard = true;
            events.push(AgentEvent::Ended(code));
        }
        if command.heard && !command.left {
            table.command = None;
            events.push(AgentEvent::Gone);
        }
        events
    }
}

/// What a watchdog, or a guard, looks after.
struct Below {
    place: Arc<Place>,
    which: usize,
}

impl Guarded for Below {
    fn tell(&mut self, watchdog: &mut Watchdog) -> bool {
        let told = std::mem::take(&mut self.place.table().told[self.which]);
        let last = told.last().copied();
        last.map(|until| watchdog.told(until)).is_some()
    }

    fn kill_command(&mut self) -> io::Result<usize> {
        let processes = self.place.die(KILLED);
        self.place.judge.lock().unwrap().figures.by_watchdogs += u64::from(processes > 0);
        Ok(processes)
    }

    fn kill_all(&mut self) -> io::Result<usize> {
        // The agent lives on if the guard was killed.
        let agent = self.which == WATCHDOG && self.place.table().agent.is_some();
        if agent {
            self.place.agent_ended(KILLED);
        }
        Ok(self.place.die(KILLED) + usize::from(agent))
    }

    fn kill_agent(&mut self) {
        if self.which == GUARD { self.place.agent_ended(KILLED) } else { self.place.guard_ended(KILLED) }
    }

    async fn hear(&mut self) -> Option<u8> {
        let which = self.which;
        let look = |table: &mut Table| {
            if let Some(code) = table.ended[which].take() {
                return Some(Some(code));
            }
            if std::mem::take(&mut table.signals[which]) {
                table.signals[which + 1] = true;
                return Some(None);
            }
            (!table.told[which].is_empty()).then_some(None)
        };
        let heard = self.place.until(look).await;
        if heard.is_none() {
            // The agent may have got a signal.
            self.place.changed();
        }
        heard
    }
}
