//! The life of a claim to a Lease, which one of several processes holds. One replica of the operator acts by it, and one `lictor agent`
//! runs its command by it, or by an object in a bucket.
//!
//! L1: the handover protocol alone makes an election safe; the claim only keeps replicas out of each other's way. Each process judges the
//! expiry by what it observed on its own monotonic clock, as client-go does (`tools/leaderelection/leaderelection.go`): a holder counts
//! from the moment at which it *sent* its renewal, a contender from the moment at which it *saw* the last change.
//!
//! A contender need not wait for a holder whose process is surely gone (L5). A replica that claims so early may act beside a holder that
//! was taken for gone by mistake, or beside requests that this holder has sent. So it gives nothing away to others before that holder's
//! claim has ended (L6).

use std::time::Duration;

use super::{Instant, Version};

/// The lengths of time in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimParameters {
    /// How long a holder that went silent keeps the claim.
    pub duration: Duration,
    /// L3: the longest time for which a contender waits for a silent holder, whatever duration that has published.
    pub patience: Duration,
}

impl ClaimParameters {
    /// The longest duration that any replica is given. A person wrote any longer one by hand, and no replica would act for that long.
    pub const LONGEST: Duration = Duration::from_secs(300);

    /// The lengths for a replica of the operator. L3: it waits no longer for another replica than that one would wait for it.
    pub fn of_replica(duration: Duration) -> Self {
        Self { duration, patience: duration }
    }

    /// The lengths for a process that waits for the whole published duration, up to the longest that any replica is given: an agent,
    /// because its command relies on the lock, and `lictor withdraw`, because an operator that still runs comes first.
    pub fn patient(duration: Duration) -> Self {
        Self { duration, patience: Self::LONGEST }
    }

    /// The duration that is written, in whole seconds.
    pub fn published(self) -> Duration {
        Duration::from_secs(self.duration.as_secs().max(1))
    }

    /// The time from one renewal to the next.
    pub fn renewal(self) -> Duration {
        self.duration / 3
    }

    /// L2: how long before the end of its claim a holder stops, because requests that it has sent may still be on their way, and clocks do
    /// not run equally fast.
    pub fn margin(self) -> Duration {
        self.duration / 5
    }

    /// The time from one attempt to the next after a failure.
    pub fn retry(self) -> Duration {
        self.duration / 15
    }
}

/// The duration in a released lease, as other tools and older versions of lictor write it. A released lease adds the time for which earlier
/// holders may still act.
const RELEASED: Duration = Duration::from_secs(1);

/// The operator's lease, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    version: Version,
    holder: Option<String>,
    /// The duration that this holder has published.
    duration: Duration,
    /// When this version was first seen.
    at: Instant,
}

/// One replica's view of the operator's lease.
#[derive(Clone, Debug)]
pub struct Claim {
    identity: String,
    parameters: ClaimParameters,
    seen: Option<Seen>,
    /// The highest version that was seen, even if the lease is gone since.
    known: Version,
    /// When the last renewal that succeeded was sent.
    renewed: Option<Instant>,
    /// Whether the process of the present holder is gone.
    gone: bool,
    /// When the claims of the earlier holders end that did not release the lease.
    others_until: Instant,
    /// The earliest moment of the next request.
    not_before: Instant,
    /// How many times the lease has passed to this replica.
    takeovers: u64,
}

/// Whether this replica may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The replica may act until this moment.
    Acting(Instant),
    /// The replica may not act.
    Standby,
}

/// The next action that a claim needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimCommand {
    /// Write the lease in this replica's name, by compare-and-swap.
    Write {
        /// The version last seen, or `None` if there is no lease.
        expected: Option<Version>,
        /// Whether this write changes the holder.
        takes_over: bool,
    },
    /// Do nothing before this moment, unless the lease changes.
    Wait(Instant),
}

impl Claim {
    /// The claim of a replica that has seen nothing yet. `identity` must be unique among all replicas and all their starts.
    pub fn new(identity: String, parameters: ClaimParameters) -> Self {
        let (known, not_before) = (Version::default(), Instant::default());
        let (gone, others_until) = (false, Instant::default());
        Self { identity, parameters, seen: None, known, renewed: None, gone, others_until, not_before, takeovers: 0 }
    }

    /// Takes the lease as it was seen, or `None` if there is none. A8: whoever keeps the claim in an object of which nothing tells the
    /// holder that it is gone, puts a state of it in that place, and never says that there is none. A9: whoever keeps it in a lease that the
    /// store ends by itself takes each reading for a later version, and calls all other holders by one name.
    pub fn observe(&mut self, lease: Option<(Version, Option<String>, Duration)>, now: Instant) {
        let was_mine = self.is_mine();
        match lease {
            None => {
                self.leave_behind(None);
                (self.seen, self.gone) = (None, false);
            }
            Some((version, ..)) if self.seen.as_ref().is_some_and(|seen| seen.version >= version) => {}
            Some((version, holder, duration)) => {
                let duration = duration.min(ClaimParameters::LONGEST);
                self.known = self.known.max(version);
                if holder.is_some() {
                    self.leave_behind(holder.as_deref());
                } else {
                    // The replica that released the lease wrote into it how long earlier holders may still act.
                    self.others_until = self.others_until.max(now + duration.saturating_sub(RELEASED));
                }
                if self.gone && holder == self.holder().cloned() {
                    // The holder's last renewal came before this replica's claim, which was therefore refused. The next claim need not
                    // wait.
                    self.not_before = now;
                } else {
                    // If the holder comes back, it was not gone.
                    self.gone = false;
                }
                self.seen = Some(Seen { version, holder, duration, at: now });
            }
        }
        if !self.is_mine() {
            self.renewed = None;
        }
        self.takeovers += u64::from(!was_mine && self.is_mine());
    }

    /// Notes that the lease has passed from its last holder, which did not release it, to `next`, or to no holder.
    fn leave_behind(&mut self, next: Option<&str>) {
        let Some(Seen { holder: Some(holder), at, duration, .. }) = &self.seen else { return };
        if Some(holder.as_str()) != next && *holder != self.identity {
            self.others_until = self.others_until.max(*at + *duration);
        }
    }

    /// L5: notes that a process is gone. If it holds the lease, it can't renew it any more, and this replica need not wait for it.
    pub fn gone(&mut self, holder: &str) {
        self.gone |= self.is_others() && self.holder().is_some_and(|present| present == holder);
    }

    /// L6: the moment from which no earlier holder of the lease can act any more.
    pub fn alone_from(&self) -> Instant {
        self.others_until
    }

    /// Whether a later version of the lease is known than this one. A watch may report late what came before a read or a write, and also
    /// that the lease was deleted.
    pub fn knows_later(&self, version: Version) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.version > version)
    }

    /// The highest version that was seen.
    pub fn known(&self) -> Version {
        self.known
    }

    /// L4: takes the version that the API server answered to a request, which was sent when `known` was the highest version seen. Returns
    /// whether versions have gone back, because the API server's store was put back to an earlier state. Then nothing counts any more that
    /// was seen before.
    pub fn goes_back(&mut self, version: Version, known: Version) -> bool {
        let goes_back = version < known;
        if goes_back {
            self.leave_behind(None);
            (self.known, self.seen, self.renewed, self.gone) = (version, None, None, false);
        }
        goes_back
    }

    /// Notes that a write that was sent at `sent` succeeded.
    pub fn written(&mut self, version: Version, sent: Instant, now: Instant) {
        let was_mine = self.is_mine();
        if self.seen.as_ref().is_none_or(|seen| seen.version <= version) {
            let duration = self.parameters.duration;
            let identity = self.identity.clone();
            self.leave_behind(Some(&identity));
            self.gone = false;
            self.seen = Some(Seen { version, holder: Some(self.identity.clone()), duration, at: now });
            self.renewed = Some(sent);
        }
        self.known = self.known.max(version);
        self.not_before = now;
        self.takeovers += u64::from(!was_mine && self.is_mine());
    }

    /// L7: how many times the lease has passed to this replica. As long as this number stays, no other replica has acted in between.
    pub fn takeovers(&self) -> u64 {
        self.takeovers
    }

    /// Notes that a write failed, or that its outcome is unknown. The next one waits a little. A later read shows whether the write was
    /// carried out.
    pub fn failed(&mut self, now: Instant) {
        self.not_before = now + self.parameters.retry();
    }

    /// Whether this replica may act now.
    pub fn state(&self, now: Instant) -> ClaimState {
        match self.deadline() {
            Some(deadline) if now < deadline => ClaimState::Acting(deadline),
            _ => ClaimState::Standby,
        }
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> ClaimCommand {
        let due = match &self.seen {
            None => self.not_before,
            Some(seen) if seen.holder.is_none() => self.not_before,
            // L2.
            Some(_) if self.is_shortened() => self.not_before,
            // If no renewal is known, a request whose answer was lost has written the lease, so this replica claims it again.
            Some(_) if self.is_mine() => {
                self.renewed.map_or(self.not_before, |at| (at + self.parameters.renewal()).max(self.not_before))
            }
            // L5.
            Some(_) if self.gone => self.not_before,
            // L3.
            Some(seen) => (seen.at + seen.duration.min(self.parameters.patience)).max(self.not_before),
        };
        if now < due {
            return ClaimCommand::Wait(due);
        }
        ClaimCommand::Write { expected: self.seen.as_ref().map(|seen| seen.version), takes_over: !self.is_mine() }
    }

    /// The version under which this replica holds the lease, to give it back.
    pub fn held(&self) -> Option<Version> {
        self.seen.as_ref().filter(|_| self.is_mine()).map(|seen| seen.version)
    }

    /// L6: the duration that a replica writes when it releases the lease, in whole seconds: [`RELEASED`], and the time for which earlier
    /// holders may still act.
    pub fn released(&self, now: Instant) -> Duration {
        let others = self.others_until.since(now);
        RELEASED + Duration::from_secs(others.as_millis().div_ceil(1000).try_into().unwrap_or_default())
    }

    /// The last holder that was seen.
    pub fn holder(&self) -> Option<&String> {
        self.seen.as_ref()?.holder.as_ref()
    }

    /// Whether another replica was the last holder that was seen.
    pub fn is_others(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder.is_some()) && !self.is_mine()
    }

    fn is_mine(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder.as_deref() == Some(self.identity.as_str()))
    }

    /// L2: whether a person has written a shorter duration into the lease while this replica holds it. Contenders count with that duration.
    pub fn is_shortened(&self) -> bool {
        self.is_mine() && self.seen.as_ref().is_some_and(|seen| seen.duration < self.parameters.published())
    }

    fn deadline(&self) -> Option<Instant> {
        let renewed = self.renewed.filter(|_| self.is_mine())?;
        let own = renewed + self.parameters.duration - self.parameters.margin();
        let shortened = self.seen.as_ref().filter(|_| self.is_shortened());
        Some(shortened.map_or(own, |seen| own.min(seen.at + seen.duration - seen.duration / 5)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: ClaimParameters =
        ClaimParameters { duration: Duration::from_secs(15), patience: Duration::from_secs(15) };

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn theirs(version: u64) -> (Version, Option<String>, Duration) {
        (Version(version), Some("other".into()), Duration::from_secs(15))
    }

    fn write(expected: Option<u64>, takes_over: bool) -> ClaimCommand {
        ClaimCommand::Write { expected: expected.map(Version), takes_over }
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_renewed_at_a_third() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        assert_eq!(claim.next(at(0)), write(None, true));
        claim.written(Version(1), at(0), at(1));
        assert_eq!(claim.state(at(1)), ClaimState::Acting(at(12)));
        assert_eq!(claim.next(at(1)), ClaimCommand::Wait(at(5)));
        assert_eq!(claim.next(at(5)), write(Some(1), false));
    }

    /// Shows L7.
    #[test]
    fn a_takeover_is_counted_whenever_another_replica_may_have_acted_before() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(0));
        claim.written(Version(2), at(5), at(5));
        // The claim lapses, and is renewed later without another holder in between.
        claim.written(Version(3), at(40), at(40));
        assert_eq!(claim.takeovers(), 1);
        // Another one has released it.
        claim.observe(Some((Version(5), None, Duration::from_secs(1))), at(60));
        claim.written(Version(6), at(60), at(60));
        assert_eq!(claim.takeovers(), 2);
        claim.observe(Some(theirs(7)), at(70));
        // The answer to this replica's write was lost.
        claim.observe(Some((Version(8), Some("me".into()), Duration::from_secs(15))), at(90));
        assert_eq!(claim.takeovers(), 3);
        claim.observe(None, at(91));
        claim.written(Version(9), at(92), at(92));
        assert_eq!(claim.takeovers(), 4);
    }

    /// Shows L2.
    #[test]
    fn a_holder_stops_before_its_claim_ends() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(2));
        assert_eq!(claim.state(at(11)), ClaimState::Acting(at(12)));
        assert_eq!(claim.state(at(12)), ClaimState::Standby);
        assert!(!claim.is_others());
        assert_eq!(claim.next(at(20)), write(Some(1), false));
    }

    /// Shows L2.
    #[test]
    fn a_holder_whose_duration_was_shortened_writes_it_again_or_stops_early() {
        let mine = |version, seconds| (Version(version), Some("me".into()), Duration::from_secs(seconds));
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(0));
        claim.observe(Some(mine(2, 1)), at(2));
        assert!(claim.is_shortened());
        assert_eq!(claim.next(at(2)), write(Some(2), false));
        let until = at(2) + Duration::from_millis(800);
        assert_eq!(claim.state(at(2)), ClaimState::Acting(until));
        claim.failed(at(2));
        assert_eq!((claim.next(at(2)), claim.state(until)), (ClaimCommand::Wait(at(3)), ClaimState::Standby));
        claim.written(Version(3), at(3), at(3));
        assert_eq!((claim.is_shortened(), claim.state(at(3))), (false, ClaimState::Acting(at(15))));
        // A longer one only makes others wait.
        claim.observe(Some(mine(4, 60)), at(4));
        assert_eq!((claim.next(at(4)), claim.state(at(4))), (ClaimCommand::Wait(at(8)), ClaimState::Acting(at(15))));
    }

    /// Shows L3.
    #[test]
    fn a_contender_waits_from_what_it_saw_itself() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(100));
        assert_eq!(claim.next(at(114)), ClaimCommand::Wait(at(115)));
        claim.observe(Some(theirs(8)), at(110));
        assert_eq!(claim.next(at(115)), ClaimCommand::Wait(at(125)));
        assert_eq!(claim.next(at(125)), write(Some(8), true));
        claim.failed(at(125));
        assert_eq!(claim.next(at(125)), ClaimCommand::Wait(at(126)));
    }

    /// Shows L3.
    #[test]
    fn a_duration_that_no_replica_has_is_not_waited_for() {
        let years = Duration::from_secs(2_147_483_647);
        let mut claim = Claim::new("me".into(), ClaimParameters::of_replica(Duration::from_secs(15)));
        claim.observe(Some((Version(7), Some("other".into()), years)), at(100));
        assert_eq!(claim.next(at(100)), ClaimCommand::Wait(at(115)));
        assert_eq!(claim.next(at(115)), write(Some(7), true));
        // L6: somebody may have been given the longest one, and still act.
        claim.written(Version(8), at(115), at(116));
        assert_eq!(claim.alone_from(), at(400));

        let mut agent = Claim::new("me".into(), ClaimParameters::patient(Duration::from_secs(15)));
        agent.observe(Some((Version(7), Some("other".into()), years)), at(100));
        assert_eq!(agent.next(at(100)), ClaimCommand::Wait(at(400)), "a command may run for as long");
    }

    /// Shows L3.
    #[test]
    fn a_holder_with_a_shorter_duration_is_waited_for_as_long_as_it_says() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some((Version(7), Some("other".into()), Duration::from_secs(4))), at(100));
        assert_eq!(claim.next(at(100)), ClaimCommand::Wait(at(104)));
    }

    #[test]
    fn what_was_seen_already_is_not_waited_for_anew() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(100));
        claim.observe(Some(theirs(7)), at(110));
        assert_eq!(claim.next(at(114)), ClaimCommand::Wait(at(115)));
    }

    #[test]
    fn a_late_answer_to_a_write_that_somebody_replaced_is_no_right_to_act() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(8)), at(1));
        claim.written(Version(7), at(0), at(2));
        assert_eq!(claim.state(at(2)), ClaimState::Standby);
        assert!(claim.is_others());
    }

    #[test]
    fn a_claim_that_was_seen_to_be_others_is_not_its_own_again_without_a_write() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(0));
        claim.observe(Some(theirs(2)), at(1));
        claim.observe(Some((Version(3), Some("me".into()), PARAMETERS.duration)), at(2));
        assert_eq!(claim.state(at(2)), ClaimState::Standby);
        claim.written(Version(4), at(3), at(4));
        assert_eq!(claim.state(at(4)), ClaimState::Acting(at(15)));
        claim.observe(Some((Version(4), Some("me".into()), PARAMETERS.duration)), at(5));
        assert_eq!(claim.state(at(5)), ClaimState::Acting(at(15)));
    }

    #[test]
    fn a_claim_that_has_ended_is_taken_anew_at_once() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(1));
        claim.failed(at(11));
        assert_eq!(claim.next(at(12)), write(Some(1), false));
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(11));
        assert_eq!(claim.next(at(12)), write(Some(1), false), "it was answered late");
    }

    /// Shows L5.
    #[test]
    fn a_holder_whose_process_is_gone_is_not_waited_for() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(100));
        claim.gone("another");
        assert_eq!(claim.next(at(101)), ClaimCommand::Wait(at(115)), "that is not the holder");
        claim.gone("other");
        assert_eq!(claim.next(at(101)), write(Some(7), true));
        // It had renewed its claim once more.
        claim.failed(at(101));
        claim.observe(Some(theirs(8)), at(101));
        assert_eq!(claim.next(at(101)), write(Some(8), true));
        claim.failed(at(101));
        assert_eq!(claim.next(at(101)), ClaimCommand::Wait(at(102)), "what fails for another reason is not hurried");
        // Another replica was faster.
        claim.observe(Some((Version(9), Some("third".into()), PARAMETERS.duration)), at(102));
        assert_eq!(claim.next(at(102)), ClaimCommand::Wait(at(117)));
    }

    /// Shows L5. Else two that take each other for gone would never come to rest.
    #[test]
    fn a_holder_that_was_taken_for_gone_and_comes_back_is_waited_for() {
        for between in [Some("third"), None] {
            let mut claim = Claim::new("me".into(), PARAMETERS);
            claim.observe(Some(theirs(7)), at(100));
            claim.gone("other");
            match between {
                Some(third) => claim.observe(Some((Version(8), Some(third.into()), PARAMETERS.duration)), at(101)),
                None => claim.written(Version(8), at(101), at(101)),
            }
            claim.observe(Some(theirs(9)), at(102));
            assert_eq!(claim.next(at(102)), ClaimCommand::Wait(at(117)), "{between:?}");
            claim.gone("third");
            assert_eq!(claim.next(at(102)), ClaimCommand::Wait(at(117)), "it is not the holder");
        }
    }

    /// Shows L6.
    #[test]
    fn who_claims_early_is_alone_when_the_claim_before_has_ended() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(100));
        claim.gone("other");
        claim.written(Version(8), at(101), at(102));
        assert_eq!((claim.state(at(102)), claim.alone_from()), (ClaimState::Acting(at(113)), at(115)));
        claim.written(Version(9), at(106), at(106));
        assert_eq!(claim.alone_from(), at(115), "a renewal changes nothing");

        let mut waited = Claim::new("me".into(), PARAMETERS);
        waited.observe(Some(theirs(7)), at(100));
        waited.written(Version(8), at(115), at(115));
        assert_eq!(waited.alone_from(), at(115));

        let mut released = Claim::new("me".into(), PARAMETERS);
        released.observe(Some(theirs(7)), at(100));
        released.observe(Some((Version(8), None, Duration::from_secs(1))), at(101));
        released.written(Version(9), at(101), at(102));
        assert_eq!(released.alone_from(), at(101), "who releases it has ended");
    }

    /// Shows L6.
    #[test]
    fn who_held_a_lease_that_was_deleted_or_put_back_or_was_claimed_early_by_another_may_still_act() {
        let mut deleted = Claim::new("me".into(), PARAMETERS);
        deleted.observe(Some(theirs(7)), at(100));
        deleted.observe(None, at(101));
        assert_eq!(deleted.next(at(101)), write(None, true));
        assert_eq!(deleted.alone_from(), at(115));

        let mut back = Claim::new("me".into(), PARAMETERS);
        back.observe(Some(theirs(7)), at(100));
        assert!(back.goes_back(Version(3), Version(7)));
        assert_eq!(back.alone_from(), at(115));

        let mut third = Claim::new("me".into(), PARAMETERS);
        third.observe(Some(theirs(7)), at(100));
        third.observe(Some((Version(8), Some("third".into()), Duration::from_secs(15))), at(101));
        third.observe(Some((Version(9), None, Duration::from_secs(1))), at(102));
        assert_eq!(third.next(at(102)), write(Some(9), true));
        assert_eq!(third.alone_from(), at(115), "the third one has released it, and the other one has not");
        assert_eq!(third.released(at(102)), Duration::from_secs(14));
        assert_eq!(third.released(at(120)), Duration::from_secs(1));

        // One that has not seen them is told.
        let mut new = Claim::new("me".into(), PARAMETERS);
        new.observe(Some((Version(9), None, Duration::from_secs(14))), at(102));
        assert_eq!(new.next(at(102)), write(Some(9), true));
        assert_eq!(new.alone_from(), at(115));
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(100));
        claim.observe(Some((Version(8), None, Duration::from_secs(1))), at(101));
        assert_eq!(claim.next(at(101)), write(Some(8), true));
    }

    #[test]
    fn somebody_elses_write_ends_the_claim() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(1), at(0), at(0));
        claim.observe(Some(theirs(2)), at(1));
        assert_eq!(claim.state(at(1)), ClaimState::Standby);
        assert!(claim.is_others());
        assert_eq!(claim.held(), None);
    }

    #[test]
    fn an_older_version_seen_late_changes_nothing() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.written(Version(5), at(0), at(0));
        claim.observe(Some(theirs(4)), at(1));
        assert_eq!(claim.held(), Some(Version(5)));
    }

    /// Shows L4.
    #[test]
    fn a_lease_that_is_back_at_an_earlier_version_is_taken_or_waited_for_like_one_seen_for_the_first_time() {
        let held = || {
            let mut claim = Claim::new("me".into(), PARAMETERS);
            claim.written(Version(917), at(0), at(1));
            claim
        };
        let mine = (Version(304), Some("me".into()), PARAMETERS.duration);
        let mut claim = held();
        let known = claim.known();
        claim.failed(at(5));
        assert!(claim.goes_back(Version(304), known));
        claim.observe(Some(mine), at(5));
        assert_eq!(claim.state(at(5)), ClaimState::Standby);
        assert_eq!(claim.next(at(6)), write(Some(304), false));
        let known = claim.known();
        assert!(!claim.goes_back(Version(305), known), "it is told once");
        claim.written(Version(305), at(6), at(7));
        assert_eq!(claim.state(at(7)), ClaimState::Acting(at(18)));

        let mut claim = held();
        assert!(claim.goes_back(Version(304), Version(917)));
        claim.observe(Some(theirs(304)), at(5));
        assert_eq!(claim.next(at(6)), ClaimCommand::Wait(at(20)));

        let mut claim = held();
        claim.observe(None, at(5));
        assert!(claim.goes_back(Version(200), claim.known()), "a lease is made anew at a later version");
    }

    #[test]
    fn an_answer_that_is_older_than_what_the_watch_brought_meanwhile_is_no_step_back() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.observe(Some(theirs(7)), at(1));
        let known = claim.known();
        claim.observe(Some(theirs(9)), at(2));
        assert!(!claim.goes_back(Version(8), known));
        assert!(!claim.goes_back(Version(9), claim.known()), "nor is what is known already");
        claim.observe(Some(theirs(8)), at(3));
        assert_eq!(claim.next(at(17)), write(Some(9), true));
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_no_right_to_act() {
        let mut claim = Claim::new("me".into(), PARAMETERS);
        claim.failed(at(0));
        claim.observe(Some((Version(3), Some("me".into()), Duration::from_secs(15))), at(0));
        assert_eq!(claim.state(at(0)), ClaimState::Standby);
        assert_eq!(claim.next(at(1)), write(Some(3), false));
    }
}
