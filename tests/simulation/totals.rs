//! What all seeds together have done and looked at, and how much that has to be at least.

use std::fmt;

use crate::judge::Figures;
use crate::run::Report;

/// What a seed must show on average. It lasts for 180 s of faults and some 95 s of calm; there are some 43 faults in it, from 12 to 90
/// as the seed draws them, and some 14 leaderships. A third less has another cause than chance.
const FAULTS: u64 = 30;
const LEADERSHIPS: u64 = 10;
const SWITCHES: u64 = 6;
const JUDGED: u64 = 250_000;
/// In a hundred seeds: how often a standby must take the replica that acts for gone.
const TAKEN_FOR_GONE: u64 = 180;
/// For how long two replicas of a cluster must act at once in a seed, on average.
const BOTH_ACTED: u64 = 2_000;
/// How many switchovers must be complete in a seed, on average.
const SWITCHED_OVER: u64 = 1;
/// The averages of fewer seeds are left to chance.
const ENOUGH: u64 = 100;
/// Of a thousand: for how much of the time a cluster may be excused.
const EXCUSED: u64 = 50;

/// What was done and looked at in all seeds together.
#[derive(Default)]
pub struct Totals {
    faults: u64,
    figures: Figures,
    recovery: u64,
}

impl Totals {
    /// One more.
    pub fn add(&mut self, report: &Report) {
        let Figures {
            revisions,
            leaderships,
            excused,
            excused_for,
            judged_for,
            two_led_for,
            ticks,
            ticks_handed_on,
            switches,
            deletions,
            taken_for_gone,
            both_acted,
            ended,
            gone,
            switched_over,
            not_switched_over,
            handed_over,
            followed,
        } = report.figures;
        self.faults += report.faults;
        self.figures.revisions += revisions;
        self.figures.leaderships += leaderships;
        self.figures.excused += excused;
        self.figures.excused_for += excused_for;
        self.figures.judged_for += judged_for;
        self.figures.two_led_for += two_led_for;
        self.figures.ticks += ticks;
        self.figures.ticks_handed_on += ticks_handed_on;
        self.figures.switches += switches;
        self.figures.deletions += deletions;
        self.figures.taken_for_gone += taken_for_gone;
        self.figures.both_acted += both_acted;
        self.figures.ended += ended;
        self.figures.gone += gone;
        self.figures.switched_over += switched_over;
        self.figures.not_switched_over += not_switched_over;
        self.figures.handed_over += handed_over;
        self.figures.followed += followed;
        self.recovery = self.recovery.max(report.recovery);
    }

    /// Of a thousand.
    fn excused_share(&self) -> u64 {
        1_000 * self.figures.excused_for / self.figures.judged_for.max(1)
    }

    /// Panics where the run shows too little: it broke little, elected little, or looked away.
    pub fn assert_enough(&self, seeds: u64) {
        if seeds < ENOUGH {
            return;
        }
        let Figures { leaderships, switches, ticks, ticks_handed_on, deletions, excused_for, judged_for, .. } =
            self.figures;
        let Figures { taken_for_gone, both_acted, gone, switched_over, .. } = self.figures;
        let (taken_for_gone, both_acted) = (100 * taken_for_gone / seeds, both_acted / seeds);
        let (faults, leaderships, judged) =
            (self.faults / seeds, leaderships / seeds, (judged_for - excused_for) / seeds);
        assert!(faults >= FAULTS, "{faults} faults a seed, and at least {FAULTS} are needed");
        assert!(leaderships >= LEADERSHIPS, "{leaderships} leaderships a seed, and at least {LEADERSHIPS} are needed");
        assert!(switches >= SWITCHES * seeds, "{switches} switches, and at least {SWITCHES} a seed are needed");
        let rare = [
            (deletions, "elections deleted"),
            (ticks, "ticks"),
            (10 * ticks_handed_on, "ticks handed on, times ten"),
            (2 * gone, "leaders whose process was gone, times two"),
            (self.figures.followed, "leaders by a lock of the pods' own"),
            (2 * self.figures.handed_over, "switchovers to the other cluster that are complete, times two"),
        ];
        for (count, what) in rare {
            assert!(2 * count >= seeds, "{count} {what}, and at least half of the seeds are needed");
        }
        assert!(
            taken_for_gone >= TAKEN_FOR_GONE,
            "{taken_for_gone} times in 100 seeds a replica was taken for gone, and at least {TAKEN_FOR_GONE} are needed"
        );
        assert!(switched_over >= SWITCHED_OVER * seeds, "{switched_over} switchovers are complete in {seeds} seeds");
        assert!(both_acted >= BOTH_ACTED, "two acted for {both_acted} ms a seed, and at least {BOTH_ACTED} are needed");
        assert!(judged >= JUDGED, "{judged} ms are judged of a seed, and at least {JUDGED} are needed");
        assert!(
            1_000 * excused_for <= EXCUSED * judged_for,
            "a cluster was excused for more than {EXCUSED} thousandths of the time: {self}"
        );
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { revisions, leaderships, excused, excused_for, judged_for, .. } = self.figures;
        let Figures { ended, gone, .. } = self.figures;
        let Figures { ticks, ticks_handed_on, switches, deletions, taken_for_gone, both_acted, two_led_for, .. } =
            self.figures;
        let Figures { switched_over, not_switched_over, handed_over, followed, .. } = self.figures;
        let share = self.excused_share();
        write!(
            f,
            "{} faults, {revisions} revisions of pods, {leaderships} leaderships, {switches} switches of a Service, {deletions} elections deleted, {ticks} ticks, \
             {ticks_handed_on} of them after one in the other cluster; {ended} times a program ended, and {gone} times a leader was replaced \
             because its process was gone; {taken_for_gone} times the replica that acted was taken for gone, \
             and two acted at once for {:.2} hours; {switched_over} switchovers were complete, {handed_over} of them to the other cluster, and {not_switched_over} failed; {followed} times a pod led that held a lock of the pods' own; judged between clusters for {:.1} simulated hours, of \
             which a cluster was excused for {:.1} ({}.{} %); {excused} times two led and were excused, for {:.1} s; longest recovery {:.1} s",
            self.faults,
            hours(both_acted),
            hours(judged_for),
            hours(excused_for),
            share / 10,
            share % 10,
            hours(two_led_for) * 3600.0,
            hours(self.recovery) * 3600.0,
        )
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn hours(milliseconds: u64) -> f64 {
    milliseconds as f64 / 3_600_000.0
}

#[cfg(test)]
mod tests {
    //! Each floor once.

    use super::*;

    fn totals() -> Totals {
        let figures = Figures {
            revisions: 5_000,
            leaderships: 1_000,
            excused: 1,
            excused_for: 0,
            judged_for: 25_000_000,
            two_led_for: 0,
            ticks: 300,
            ticks_handed_on: 30,
            switches: 1_000,
            deletions: 60,
            taken_for_gone: 180,
            both_acted: 200_000,
            ended: 200,
            gone: 60,
            switched_over: 100,
            not_switched_over: 100,
            handed_over: 50,
            followed: 60,
        };
        Totals { faults: 3_000, figures, recovery: 0 }
    }

    #[test]
    fn enough_is_enough() {
        totals().assert_enough(100);
        Totals { faults: 0, ..totals() }.assert_enough(99);
    }

    #[test]
    #[should_panic(expected = "faults a seed")]
    fn few_faults_show_nothing() {
        Totals { faults: 2_999, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "a seed are needed")]
    fn few_switches_show_nothing() {
        Totals { figures: Figures { switches: 599, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "49 elections deleted")]
    fn few_deletions_show_nothing() {
        Totals { figures: Figures { deletions: 49, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "40 ticks handed on")]
    fn few_ticks_that_are_handed_on_show_nothing() {
        Totals { figures: Figures { ticks_handed_on: 4, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "leaderships a seed")]
    fn few_leaderships_show_nothing() {
        Totals { figures: Figures { leaderships: 999, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "was taken for gone")]
    fn who_takes_nobody_for_gone_shows_nothing() {
        Totals { figures: Figures { taken_for_gone: 179, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "48 leaders whose process was gone, times two")]
    fn few_processes_that_are_gone_show_nothing() {
        Totals { figures: Figures { gone: 24, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "49 leaders by a lock of the pods' own")]
    fn few_locks_of_the_pods_own_show_nothing() {
        Totals { figures: Figures { followed: 49, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "99 switchovers are complete")]
    fn few_switchovers_show_nothing() {
        Totals { figures: Figures { switched_over: 99, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "two acted for")]
    fn one_at_a_time_shows_nothing() {
        Totals { figures: Figures { both_acted: 199_999, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "ms are judged")]
    fn little_time_shows_nothing() {
        Totals { figures: Figures { judged_for: 24_999_999, ..totals().figures }, ..totals() }.assert_enough(100);
    }

    #[test]
    #[should_panic(expected = "a cluster was excused")]
    fn who_looks_away_sees_nothing() {
        let figures = Figures { judged_for: 50_000_000, excused_for: 2_550_000, ..totals().figures };
        Totals { figures, ..totals() }.assert_enough(100);
    }
}
