//! What goes wrong with candidates, and when: drawn from a seed before a run begins.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lictor_testing::Prng;

use super::place::Part;
use super::world::{CANDIDATES, Setting, Store, World};
use crate::faults::{TROUBLES, Trouble, change, draw};

/// Something that goes wrong at a moment, and is over some time later. All times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: u64,
    pub lasts: u64,
    pub what: What,
    /// A candidate; none: whoever leads.
    place: Option<usize>,
    number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Kill(Part),
    Stop(Part),
    /// It is asked to end, and started again.
    Terminate,
    /// A command ends by itself.
    CommandEnds,
    /// It is asked to yield.
    Yield,
    /// Of a candidate's way to the store.
    Link(Trouble),
    LinkOfAll(Trouble),
    /// Another server leads Consul, after a time without a leader.
    ConsulLeader,
    SessionEnds,
    /// Watches of a candidate bring nothing.
    Silence,
    /// The API server forgets what happened: watches have a gap.
    Compaction,
}

const KINDS: [What; 19] = [
    What::Kill(Part::Agent),
    What::Kill(Part::Watchdog),
    What::Kill(Part::Guard),
    What::Kill(Part::Both),
    What::Kill(Part::All),
    What::Stop(Part::Agent),
    What::Stop(Part::Watchdog),
    What::Stop(Part::Guard),
    What::Stop(Part::Both),
    What::Stop(Part::All),
    What::Terminate,
    What::CommandEnds,
    What::Yield,
    What::Link(Trouble::Slow),
    What::LinkOfAll(Trouble::Slow),
    What::ConsulLeader,
    What::SessionEnds,
    What::Silence,
    What::Compaction,
];

/// What brings nothing to the store later than its sender is sure of: so a session is not destroyed by a request of an agent that is
/// gone for long.
const PROMPT: [Trouble; 4] = [Trouble::AnswersCut, Trouble::Refused, Trouble::Slow, Trouble::Errors];

/// The faults of a seed, in order. Every seed has a mixture of its own and leaves many kinds out, so that long chains of the others come
/// up (Groce and others, "Swarm testing", 2012).
pub fn plan(seed: u64, until: u64) -> Vec<Fault> {
    let (mut prng, setting) = (Prng::new(seed ^ 0xfa17), Setting::of(seed));
    let share = [30, 50, 80][prng.below(3)];
    let can = |what: &What| match what {
        What::ConsulLeader => setting.consul,
        What::SessionEnds => setting.consul && setting.outlasts(),
        What::Silence | What::Compaction => !setting.consul,
        _ => true,
    };
    let kinds: Vec<What> = KINDS.into_iter().filter(can).filter(|_| prng.percent(share)).collect();
    let troubles: &[Trouble] = if setting.outlasts() { &TROUBLES } else { &PROMPT };
    let troubles: Vec<Trouble> = troubles.iter().copied().filter(|_| prng.percent(share)).collect();
    let between = [2_000, 6_000, 15_000][prng.below(3)];
    let (mut at, mut faults) = (5_000, Vec::new());
    loop {
        at += draw(&mut prng, 2 * between);
        if at >= until {
            return faults;
        }
        let mut what = prng.pick(&kinds).copied().unwrap_or(What::Kill(Part::Agent));
        if let What::Link(trouble) | What::LinkOfAll(trouble) = &mut what {
            *trouble = prng.pick(&troubles).copied().unwrap_or(Trouble::Refused);
        }
        let longest = [1_500, 8_000, 45_000][prng.below(3)];
        let lasts = draw(&mut prng, longest).min(until - at);
        let place = Some(prng.below(CANDIDATES)).filter(|_| prng.percent(40));
        faults.push(Fault { at, lasts, what, place, number: prng.below(1_000) });
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lasts, what, place, .. } = self;
        write!(f, "{:4}.{:03} s, for {}.{:03} s: {what:?}", at / 1000, at % 1000, lasts / 1000, lasts % 1000)?;
        match place {
            Some(place) => write!(f, " of c{place}"),
            None => write!(f, " of the leader"),
        }
    }
}

impl Fault {
    /// Begins it. Returns whom it has met, to end it there.
    pub fn begin(&self, world: &Arc<World>) -> usize {
        let met = self.place.or_else(|| world.leader()).unwrap_or(self.number % CANDIDATES);
        world.log.note(|| format!("--- {self}: c{met}"));
        let place = &world.places[met];
        match self.what {
            What::Kill(part) => place.kill(part),
            What::Stop(part) => place.stop(part, true),
            What::Terminate => place.terminate(),
            What::CommandEnds => place.command_ends(u8::try_from(self.number % 4).unwrap_or(0)),
            What::Yield => yields(world, met),
            What::Link(trouble) => world.links[met].change(|weather| change(weather, trouble, true)),
            What::LinkOfAll(trouble) => {
                world.links.iter().for_each(|link| link.change(|weather| change(weather, trouble, true)));
            }
            What::ConsulLeader => {
                if let Store::Consul(consul) = &world.store {
                    consul.change_leader(Duration::from_millis(self.lasts.min(10_000)));
                }
            }
            What::SessionEnds => world.end_session(met),
            What::Silence => world.links[met].change(|weather| weather.silent = &["leases"]),
            What::Compaction => {
                if let Store::Api(api) = &world.store {
                    api.compact();
                }
            }
        }
        met
    }

    pub fn end(&self, world: &World, met: usize) {
        match self.what {
            What::Stop(part) => world.places[met].stop(part, false),
            What::Link(trouble) => world.links[met].change(|weather| change(weather, trouble, false)),
            What::LinkOfAll(trouble) => {
                world.links.iter().for_each(|link| link.change(|weather| change(weather, trouble, false)));
            }
            What::Silence => world.links[met].change(|weather| weather.silent = &[]),
            _ => {}
        }
    }
}

fn yields(world: &Arc<World>, number: usize) {
    let Some(handle) = world.places[number].handle() else { return };
    let world = world.clone();
    tokio::spawn(async move {
        let yielded = handle.give_away().await;
        world.log.note(|| format!("c{number} was asked to yield: {yielded:?}"));
        world.judge.lock().unwrap().figures.yields += u64::from(yielded == lictor_agent::Yielded::Away);
    });
}
