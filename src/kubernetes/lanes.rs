//! The order in which waiting requests begin, and how many are under way at a time. This module is pure: it knows nothing about the
//! requests.
//!
//! Each request belongs to a member (an election) of a group (a namespace, or a store). Neither takes more than its share, so requests that
//! hang in one do not delay the others. An [`Urgent`](Class::Urgent) request goes before those of a [`New`](Class::New) group, and these go
//! before requests that can [`Wait`](Class::Wait). The last two classes together take no more than three quarters of any limit. Within a
//! class the groups take turns, and within a group its members. The cost of a request does not depend on the number of groups and members.

use std::collections::{BTreeMap, VecDeque};

/// The urgency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The choice of the leader depends on the request.
    Urgent,
    /// The same for a group that has had no leader yet. When ten thousand groups begin at once, no failover waits for them.
    New,
    /// No other step waits for the request.
    Wait,
}

/// The number of requests that may be under way at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The limit of all groups together.
    pub(crate) all: usize,
    /// The limit of each group.
    pub(crate) group: usize,
    /// The limit of each member of a group.
    pub(crate) member: usize,
}

/// The owner of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) group: String,
    pub(crate) member: String,
}

/// The turn of a request that has begun. The caller gives it back when the request has ended.
#[derive(Debug)]
pub(crate) struct Turn {
    share: Share,
    class: Class,
}

/// The waiting requests, and the number of those under way.
#[derive(Debug)]
pub(crate) struct Lanes<R> {
    limits: Limits,
    running: Running,
    groups: BTreeMap<String, Group<R>>,
    rings: [Ring; CLASSES],
    waiting: [usize; CLASSES],
}

#[derive(Debug)]
struct Group<R> {
    running: Running,
    members: BTreeMap<String, Member<R>>,
    rings: [Ring; CLASSES],
    in_ring: [bool; CLASSES],
}

#[derive(Debug)]
struct Member<R> {
    running: Running,
    waiting: [VecDeque<R>; CLASSES],
    in_ring: [bool; CLASSES],
}

/// The groups or members that may have a request that can begin, each once. A group or member at its limit leaves the ring, and comes back
/// when one of its requests has ended.
type Ring = VecDeque<String>;

/// The number of requests under way, by class.
#[derive(Clone, Copy, Debug, Default)]
struct Running([usize; CLASSES]);

const CLASSES: usize = 3;

impl Class {
    const IN_ORDER: [Self; CLASSES] = [Self::Urgent, Self::New, Self::Wait];
}

impl Running {
    fn total(self) -> usize {
        self.0.iter().sum()
    }

    fn admits(self, class: Class, limit: usize) -> bool {
        let others = self.total() - self.0[Class::Urgent as usize];
        self.total() < limit && (class == Class::Urgent || others < (limit * 3 / 4).max(1))
    }
}

impl<R> Lanes<R> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            running: Running::default(),
            groups: BTreeMap::new(),
            rings: Default::default(),
            waiting: [0; CLASSES],
        }
    }

    /// Puts a request behind the others of its member and class.
    pub(crate) fn push(&mut self, share: &Share, class: Class, request: R) {
        let group = self.groups.entry(share.group.clone()).or_default();
        let member = group.members.entry(share.member.clone()).or_default();
        member.waiting[class as usize].push_back(request);
        self.waiting[class as usize] += 1;
        self.enter(share, class);
    }

    /// The next request that may begin now.
    pub(crate) fn next(&mut self) -> Option<(Turn, R)> {
        Class::IN_ORDER.into_iter().find_map(|class| self.next_of(class))
    }

    /// Takes the end of a request.
    pub(crate) fn end(&mut self, turn: &Turn) {
        let Turn { share, class } = turn;
        self.running.0[*class as usize] -= 1;
        let Some(group) = self.groups.get_mut(&share.group) else { return };
        group.running.0[*class as usize] -= 1;
        let Some(member) = group.members.get_mut(&share.member) else { return };
        member.running.0[*class as usize] -= 1;
        if member.is_idle() {
            group.members.remove(&share.member);
        }
        for class in Class::IN_ORDER {
            self.enter(share, class);
        }
        if self.groups.get(&share.group).is_some_and(|group| group.members.is_empty()) {
            self.groups.remove(&share.group);
        }
    }

    /// The number of waiting requests of a class.
    pub(crate) fn waiting(&self, class: Class) -> usize {
        self.waiting[class as usize]
    }

    /// The number of waiting requests of one member.
    pub(crate) fn waiting_of(&self, share: &Share, class: Class) -> usize {
        let member = self.groups.get(&share.group).and_then(|group| group.members.get(&share.member));
        member.map_or(0, |member| member.waiting[class as usize].len())
    }

    fn next_of(&mut self, class: Class) -> Option<(Turn, R)> {
        let Limits { all, group: of_group, member: of_member } = self.limits;
        if !self.running.admits(class, all) {
            return None;
        }
        let at = class as usize;
        while let Some(name) = self.rings[at].pop_front() {
            let Some(group) = self.groups.get_mut(&name) else { continue };
            let admitted = group.running.admits(class, of_group);
            let next = if admitted { group.next(class, of_member) } else { None };
            group.in_ring[at] = admitted && !group.rings[at].is_empty();
            if group.in_ring[at] {
                self.rings[at].push_back(name.clone());
            }
            if let Some((member, request)) = next {
                group.running.0[at] += 1;
                self.running.0[at] += 1;
                self.waiting[at] -= 1;
                return Some((Turn { share: Share { group: name, member }, class }, request));
            }
        }
        None
    }

    /// Lets a member and its group take turns again, if the member has waiting requests.
    fn enter(&mut self, share: &Share, class: Class) {
        let at = class as usize;
        let Some(group) = self.groups.get_mut(&share.group) else { return };
        if let Some(member) = group.members.get_mut(&share.member)
            && !member.waiting[at].is_empty()
            && !std::mem::replace(&mut member.in_ring[at], true)
        {
            group.rings[at].push_back(share.member.clone());
        }
        if !group.rings[at].is_empty() && !std::mem::replace(&mut group.in_ring[at], true) {
            self.rings[at].push_back(share.group.clone());
        }
    }
}

impl<R> Group<R> {
    fn next(&mut self, class: Class, limit: usize) -> Option<(String, R)> {
        let at = class as usize;
        while let Some(name) = self.rings[at].pop_front() {
            let Some(member) = self.members.get_mut(&name) else { continue };
            let admitted = member.running.admits(class, limit);
            let request = if admitted { member.waiting[at].pop_front() } else { None };
            member.in_ring[at] = admitted && !member.waiting[at].is_empty();
            if member.in_ring[at] {
                self.rings[at].push_back(name.clone());
            }
            if let Some(request) = request {
                member.running.0[at] += 1;
                return Some((name, request));
            }
        }
        None
    }
}

impl<R> Member<R> {
    fn is_idle(&self) -> bool {
        self.running.total() == 0 && self.waiting.iter().all(VecDeque::is_empty)
    }
}

impl<R> Default for Group<R> {
    fn default() -> Self {
        let (running, rings) = (Running::default(), Default::default());
        Self { running, members: BTreeMap::new(), rings, in_ring: [false; CLASSES] }
    }
}

impl<R> Default for Member<R> {
    fn default() -> Self {
        Self { running: Running::default(), waiting: [const { VecDeque::new() }; CLASSES], in_ring: [false; CLASSES] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { all: 8, group: 6, member: 4 };

    fn share(group: &str, member: &str) -> Share {
        Share { group: group.into(), member: member.into() }
    }

    fn push(lanes: &mut Lanes<String>, group: &str, member: &str, class: Class, requests: usize) {
        for number in 0..requests {
            lanes.push(&share(group, member), class, format!("{group}/{member} {class:?} {number}"));
        }
    }

    /// Lets all begin that may.
    fn begin(lanes: &mut Lanes<String>) -> Vec<(Turn, String)> {
        std::iter::from_fn(|| lanes.next()).collect()
    }

    fn words(begun: &[(Turn, String)]) -> Vec<&str> {
        begun.iter().map(|(_, words)| words.as_str()).collect()
    }

    #[test]
    fn what_is_urgent_goes_first_and_always_has_room() {
        let mut lanes = Lanes::new(Limits { all: 4, group: 4, member: 4 });
        push(&mut lanes, "a", "x", Class::Wait, 9);
        assert_eq!(begin(&mut lanes).len(), 3);
        push(&mut lanes, "a", "x", Class::Urgent, 2);
        let urgent = begin(&mut lanes);
        assert_eq!(words(&urgent), ["a/x Urgent 0"]);
        lanes.end(&urgent[0].0);
        assert_eq!(words(&begin(&mut lanes)), ["a/x Urgent 1"]);
        assert_eq!((lanes.waiting(Class::Wait), lanes.waiting(Class::Urgent)), (6, 0));
    }

    #[test]
    fn however_many_groups_are_new_a_failover_begins_at_once() {
        let mut lanes = Lanes::new(LIMITS);
        for group in ["a", "b", "c"] {
            push(&mut lanes, group, "x", Class::New, 99);
            push(&mut lanes, group, "x", Class::Wait, 99);
        }
        let new = begin(&mut lanes);
        assert!(new.len() == 6 && words(&new).iter().all(|words| words.contains("New")), "{new:?}");
        push(&mut lanes, "d", "x", Class::Urgent, 1);
        assert_eq!(words(&begin(&mut lanes)), ["d/x Urgent 0"]);
        lanes.end(&new[0].0);
        assert!(words(&begin(&mut lanes))[0].contains("New"));
    }

    #[test]
    fn what_hangs_in_one_group_leaves_room_for_the_others() {
        let mut lanes = Lanes::new(LIMITS);
        push(&mut lanes, "hangs", "x", Class::Urgent, 9);
        push(&mut lanes, "hangs", "y", Class::Urgent, 9);
        assert_eq!(begin(&mut lanes).len(), LIMITS.group, "of the group");
        push(&mut lanes, "other", "x", Class::Urgent, 1);
        assert_eq!(words(&begin(&mut lanes)), ["other/x Urgent 0"]);
        assert_eq!(lanes.waiting_of(&share("hangs", "x"), Class::Urgent), 6);
    }

    #[test]
    fn what_hangs_in_one_member_leaves_room_for_its_group() {
        let mut lanes = Lanes::new(LIMITS);
        push(&mut lanes, "a", "hangs", Class::Urgent, 9);
        assert_eq!(begin(&mut lanes).len(), LIMITS.member, "of the member");
        push(&mut lanes, "a", "other", Class::Urgent, 1);
        assert_eq!(words(&begin(&mut lanes)), ["a/other Urgent 0"]);
    }

    #[test]
    fn groups_and_members_take_turns() {
        let mut lanes = Lanes::new(LIMITS);
        push(&mut lanes, "a", "x", Class::Urgent, 3);
        push(&mut lanes, "a", "y", Class::Urgent, 1);
        push(&mut lanes, "b", "x", Class::Urgent, 1);
        let order = ["a/x Urgent 0", "b/x Urgent 0", "a/y Urgent 0", "a/x Urgent 1", "a/x Urgent 2"];
        assert_eq!(words(&begin(&mut lanes)), order);
    }

    #[test]
    fn even_a_limit_of_one_lets_through_what_can_wait() {
        let mut lanes = Lanes::new(Limits { all: 1, group: 1, member: 1 });
        push(&mut lanes, "a", "x", Class::Wait, 2);
        let first = begin(&mut lanes);
        assert_eq!(words(&first), ["a/x Wait 0"]);
        lanes.end(&first[0].0);
        assert_eq!(words(&begin(&mut lanes)), ["a/x Wait 1"]);
    }

    /// Whether a request waits that the limits allow: none may, once all have begun that could.
    fn forgotten(lanes: &Lanes<String>) -> Option<(&String, &String)> {
        let Limits { all, group: of_group, member: of_member } = lanes.limits;
        for class in Class::IN_ORDER.into_iter().filter(|class| lanes.running.admits(*class, all)) {
            for (name, group) in lanes.groups.iter().filter(|(_, group)| group.running.admits(class, of_group)) {
                let mut members = group.members.iter();
                let waits = |member: &Member<String>| !member.waiting[class as usize].is_empty();
                let found = members.find(|(_, member)| waits(member) && member.running.admits(class, of_member));
                if let Some((member, _)) = found {
                    return Some((name, member));
                }
            }
        }
        None
    }

    #[test]
    fn nothing_is_forgotten_and_nothing_stays_behind() {
        for seed in 1..200_u64 {
            // A linear congruential generator, by Knuth.
            let mut state = seed;
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).unwrap() % below
            };
            let mut lanes = Lanes::new(LIMITS);
            let mut running = Vec::new();
            let (mut pushed, mut ended) = (0, 0);
            for _ in 0..400 {
                if random(2) == 0 {
                    let class = Class::IN_ORDER[random(CLASSES)];
                    push(&mut lanes, ["a", "b", "c"][random(3)], ["x", "y", "z"][random(3)], class, 1);
                    pushed += 1;
                } else if !running.is_empty() {
                    let (turn, _) = running.swap_remove(random(running.len()));
                    lanes.end(&turn);
                    ended += 1;
                }
                running.extend(begin(&mut lanes));
                assert!(running.len() <= LIMITS.all);
                assert_eq!(forgotten(&lanes), None, "seed {seed}");
            }
            while let Some((turn, _)) = running.pop() {
                lanes.end(&turn);
                ended += 1;
                running.extend(begin(&mut lanes));
            }
            assert_eq!(ended, pushed, "seed {seed}");
            assert!(lanes.groups.is_empty() && lanes.waiting == [0; CLASSES], "seed {seed}");
            assert!(lanes.rings.iter().all(Ring::is_empty), "seed {seed}");
        }
    }
}
