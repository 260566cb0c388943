//! Plays a scenario: what is written happens, one line after the other, and after each the operators act until they rest.

use std::fmt::Write;

use lictor_core::{Failure, Outcome, Output, RecordOutcome, Request, Uid};

use super::inputs::{FORMS, seconds};
use super::operator::{Held, Operator, WATCHES};
use super::world::World;

/// A scenario that was played.
#[derive(Debug, PartialEq)]
pub struct Played(Vec<Line>);

#[derive(Debug, PartialEq)]
enum Line {
    /// Prose, or nothing.
    Told(String),
    Happens(Event),
}

/// Something that happens, and what follows from it.
#[derive(Debug, PartialEq)]
struct Event {
    number: usize,
    text: String,
    expected: Vec<String>,
    came: Vec<String>,
}

/// Plays a scenario.
///
/// # Errors
/// The line which is not understood, or after which a promise is broken, and why.
pub fn play(text: &str) -> Result<Played, (usize, String)> {
    let mut stage = Stage::new();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (number, text) = (index + 1, line.trim_end().to_owned());
        if text.is_empty() || text.starts_with('#') {
            lines.push(Line::Told(text));
        } else if text.starts_with(' ') {
            let before = lines.iter_mut().rev().find_map(|line| match line {
                Line::Happens(event) => Some(event),
                Line::Told(_) => None,
            });
            let event = before.ok_or_else(|| (number, "something follows, and nothing has happened yet".to_owned()))?;
            event.expected.push(text.trim().to_owned());
        } else {
            let result = stage.happens(&text);
            let came = std::mem::take(&mut stage.came);
            result.map_err(|error| (number, came.iter().fold(error, |text, line| text + "\n    " + line)))?;
            lines.push(Line::Happens(Event { number, text, expected: Vec::new(), came }));
        }
    }
    if let Some((command, fate)) = stage.fates.first() {
        return Err((text.lines().count(), format!("`next {command}: {fate}`: nobody asked for that")));
    }
    Ok(Played(lines))
}

impl Played {
    /// The scenario with what really follows.
    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, line| {
            match line {
                Line::Told(told) => writeln!(text, "{told}").unwrap(),
                Line::Happens(event) => {
                    writeln!(text, "{}", event.text).unwrap();
                    for came in &event.came {
                        writeln!(text, "    {came}").unwrap();
                    }
                }
            }
            text
        })
    }

    /// The first event, by its line, after which something else follows than what is written.
    pub fn difference(&self) -> Option<(usize, String)> {
        let events = self.0.iter().filter_map(|line| match line {
            Line::Happens(event) => Some(event),
            Line::Told(_) => None,
        });
        let mut differing = events.filter(|event| event.expected != event.came);
        let first = differing.next()?;
        let mut text = format!("after `{}` (- expected, + came)", first.text);
        let (expected, came) = (&first.expected, &first.came);
        let same = expected.iter().zip(came).take_while(|(expected, came)| expected == came).count();
        let rest = expected[same..].iter().rev().zip(came[same..].iter().rev());
        let same_end = rest.take_while(|(expected, came)| expected == came).count();
        let mut print = |sign: char, lines: &[String]| {
            for line in lines {
                write!(text, "\n{sign} {line}").unwrap();
            }
        };
        print(' ', &expected[..same]);
        print('-', &expected[same..expected.len() - same_end]);
        print('+', &came[same..came.len() - same_end]);
        print(' ', &expected[expected.len() - same_end..]);
        match differing.count() {
            0 => {}
            others => write!(text, "\n… and something else follows {others} more times").unwrap(),
        }
        Some((first.number, text))
    }
}

struct Stage {
    world: World,
    operators: Vec<Operator>,
    /// What becomes of the next commands that begin so.
    fates: Vec<(String, String)>,
    held: Vec<Held>,
    came: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        Self { world: World::new(), operators: Vec::new(), fates: Vec::new(), held: Vec::new(), came: Vec::new() }
    }

    /// Something happens, and the operators act.
    fn happens(&mut self, text: &str) -> Result<(), String> {
        let Some((head, state)) = text.split_once(": ") else { return Err(not_understood(text)) };
        let (subject, name) = head.split_once(' ').unwrap_or((head, ""));
        let parts: Vec<&str> = state.split(", ").collect();
        let understood = match (subject, name) {
            ("pod", name) if !name.is_empty() => self.world.pod(name, &parts),
            ("lock", "") => self.world.lock_is(&parts),
            ("bid", cluster) if !cluster.is_empty() => self.world.bid_is(cluster, &parts),
            ("election", "") => self.world.election_is(&parts),
            ("store", "") => self.world.store_is(&parts),
            ("followed", "") => self.world.followed_is(&parts),
            ("switchover", name) if !name.is_empty() => self.world.switchover_is(name, &parts),
            ("workload", id) => self.world.workload(id, &parts),
            ("operator", name) if !name.is_empty() => parts.iter().try_for_each(|part| self.operator_is(name, part)),
            ("next", command) => {
                let known = ["held up", "timed out", "lost", "refused", "delayed", "answer lost"].contains(&state);
                known.then(|| self.fates.push((command.into(), state.into())))
            }
            ("held", command) if state == "arrives" => {
                self.arrives(command)?;
                Some(())
            }
            ("time", "") => {
                state.strip_suffix(" s").and_then(seconds).map(|time| self.world.now = self.world.now + time)
            }
            _ => None,
        };
        understood.ok_or_else(|| not_understood(text))?;
        self.act()
    }

    fn operator_is(&mut self, name: &str, state: &str) -> Option<()> {
        if state == "starts" {
            self.operators.retain(|operator| operator.name != name);
            self.operators.push(Operator::new(name, &mut self.world));
            return Some(());
        }
        let at = self.operators.iter().position(|operator| operator.name == name)?;
        let operator = &mut self.operators[at];
        let watch = |name: &str| WATCHES.into_iter().find(|watch| *watch == name);
        match state {
            "killed" => drop(self.operators.remove(at)),
            "paused" => operator.paused = true,
            "goes on" => operator.paused = false,
            "leaves" => operator.leaves = true,
            _ => match (state.strip_prefix("sees no "), state.strip_prefix("sees ")) {
                (Some(name), _) => drop(operator.blind.insert(watch(name)?)),
                (_, Some(name)) => drop(operator.blind.remove(watch(name)?)),
                _ => return None,
            },
        }
        Some(())
    }

    /// The operators act until none of them asks for anything more.
    fn act(&mut self) -> Result<(), String> {
        for _ in 0..50 {
            let mut rests = true;
            for at in 0..self.operators.len() {
                if self.operators[at].paused {
                    continue;
                }
                let (election, Output { requests, announcements, .. }) = self.operators[at].step(&self.world);
                rests &= requests.is_empty() && announcements.is_empty();
                let name = &self.operators[at].name;
                self.came.extend(announcements.iter().map(|announcement| format!("{name}> announce {announcement}")));
                for request in requests {
                    self.asks(at, &election, &request)?;
                }
            }
            if rests {
                for operator in self.operators.iter_mut().filter(|operator| !operator.paused) {
                    let told = operator.tell(self.world.now).map(|told| format!("{}= {told}", operator.name));
                    self.came.extend(told);
                }
                return Ok(());
            }
        }
        Err("it goes on and on:".into())
    }

    /// A command is carried out and answered, unless something else is to become of it.
    fn asks(&mut self, at: usize, election: &Uid, request: &Request) -> Result<(), String> {
        let Request { op, command, .. } = request;
        let op = *op;
        let words = command.to_string();
        let operator = &self.operators[at];
        let fate = self.fates.iter().position(|(begin, _)| words.starts_with(begin));
        let fate = fate.map(|at| self.fates.remove(at).1);
        let mut line = format!("{}> {words}", operator.name);
        if let Some("held up" | "timed out") = fate.as_deref() {
            let (operator, command) = (operator.name.clone(), command.clone());
            let start = self.operators[at].start;
            self.held.push(Held { operator, start, election: election.clone(), op, command });
        }
        let lost = || Failure::Unknown("no answer".into());
        let outcome = match fate.as_deref() {
            _ if !self.operators[at].may_send(request, self.world.now) => {
                Some(command.failed(Failure::Refused("the request is no longer wanted".into())))
            }
            Some("held up") => None,
            Some("lost" | "timed out") => Some(command.failed(lost())),
            Some("refused") => Some(command.failed(Failure::Refused("not allowed".into()))),
            Some("delayed") => Some(Outcome::RecordWritten(RecordOutcome::Delayed)),
            fate => {
                let carried_out = self.world.carry_out(command, election);
                if let Err(broken) = carried_out {
                    self.came.push(line);
                    return Err(broken + ":");
                }
                Some(if fate.is_some() { command.failed(lost()) } else { carried_out? })
            }
        };
        if let Some(outcome) = outcome {
            write!(line, " => {outcome}").unwrap();
            self.operators[at].take(election, op, outcome, self.world.now);
        }
        self.came.push(line);
        Ok(())
    }

    /// What was held up is carried out; its sender is told, if there still is that one.
    fn arrives(&mut self, begin: &str) -> Result<(), String> {
        let at = self.held.iter().position(|held| held.command.to_string().starts_with(begin));
        let Held { operator, start, election, op, command } =
            at.map(|at| self.held.remove(at)).ok_or("nothing of that kind is held up")?;
        let mut line = format!("{operator}< {command}");
        let outcome = self.world.carry_out(&command, &election).map_err(|broken| format!("{broken}:\n    {line}"))?;
        write!(line, " => {outcome}").unwrap();
        if let Some(sender) = self.operators.iter_mut().find(|sender| sender.start == start) {
            sender.take(&election, op, outcome, self.world.now);
        }
        self.came.push(line);
        Ok(())
    }
}

fn not_understood(text: &str) -> String {
    let subject = text.split([' ', ':']).next().unwrap_or_default();
    let known = FORMS.iter().any(|(of, ..)| *of == subject);
    let forms = FORMS.iter().filter(|(of, ..)| !known || *of == subject);
    forms.fold(format!("`{text}` is not understood. What may be said:"), |mut text, (_, form, meaning)| {
        write!(text, "\n    {form:<58} {meaning}").unwrap();
        text
    })
}
