//! Which pod of an election carries the leader's label, as this process sees it, and what it sees of a handover.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::Uid;
use tokio::time::Instant;

/// The pods that carry the leader's label, with their names.
pub(super) type Labelled = BTreeMap<Uid, String>;

/// What has been seen of an election's leader.
#[derive(Debug, Default)]
pub(super) enum Tenure {
    /// Nothing.
    #[default]
    Unseen,
    /// This pod carries the label. `others`: pods that carry it, too.
    Led { uid: Uid, pod: String, others: Labelled },
    /// No pod carries the label. `blind`: whether a part of this time was not seen.
    Vacant { since: Instant, former: Option<(Uid, String)>, blind: bool },
}

/// What a change of labels means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first look showed this leader, or none.
    Found(Option<String>),
    /// This pod carries the label no longer, and no other does.
    Lost(String),
    /// The label is on a pod again.
    Handover { from: Option<String>, to: String, gap: Gap },
}

/// How long no pod carried the leader's label, as this process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// So long.
    Seen(Duration),
    /// The next leader had the label before the old one lost it.
    None,
    /// A part of the handover was not seen from here.
    Unseen,
}

impl Tenure {
    /// The pod that carries the label.
    pub(super) fn pod(&self) -> Option<&str> {
        match self {
            Self::Led { pod, .. } => Some(pod),
            Self::Unseen | Self::Vacant { .. } => None,
        }
    }

    /// Marks the present time as not seen.
    pub(super) fn blind(&mut self) {
        if let Self::Vacant { blind, .. } = self {
            *blind = true;
        }
    }

    /// Takes the pods that carry the label now. `blind`: whether this is news from a time that was not seen.
    pub(super) fn take(&mut self, labelled: &Labelled, now: Instant, blind: bool) -> Option<Turn> {
        let lead = |(uid, pod): (Uid, String)| {
            let others = labelled.iter().filter(|(other, _)| **other != uid);
            let others = others.map(|(uid, pod)| (uid.clone(), pod.clone())).collect();
            Self::Led { uid, pod, others }
        };
        let first = labelled.clone().pop_first();
        match (std::mem::take(self), first) {
            (Self::Unseen, None) => {
                *self = Self::Vacant { since: now, former: None, blind: true };
                Some(Turn::Found(None))
            }
            (Self::Unseen, Some(next)) => {
                let pod = next.1.clone();
                *self = lead(next);
                Some(Turn::Found(Some(pod)))
            }
            (Self::Led { uid, pod, .. }, _) if labelled.contains_key(&uid) => {
                *self = lead((uid, pod));
                None
            }
            (Self::Led { uid, pod, .. }, None) => {
                *self = Self::Vacant { since: now, former: Some((uid, pod.clone())), blind };
                Some(Turn::Lost(pod))
            }
            (Self::Led { pod, others, .. }, Some(next)) => {
                // A list after a break shows both changes at once.
                let overlapped = others.contains_key(&next.0) && !blind;
                let to = next.1.clone();
                *self = lead(next);
                Some(Turn::Handover { from: Some(pod), to, gap: if overlapped { Gap::None } else { Gap::Unseen } })
            }
            (vacant @ Self::Vacant { .. }, None) => {
                *self = vacant;
                None
            }
            (Self::Vacant { since, former, blind: was_blind }, Some(next)) => {
                let to = next.1.clone();
                *self = lead(next);
                let gap = if blind || was_blind { Gap::Unseen } else { Gap::Seen(now - since) };
                Some(Turn::Handover { from: former.map(|(_, pod)| pod), to, gap })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(pods: &[&str]) -> Labelled {
        pods.iter().map(|pod| (Uid((*pod).to_owned()), (*pod).to_owned())).collect()
    }

    fn handover(from: Option<&str>, to: &str, gap: Gap) -> Turn {
        Turn::Handover { from: from.map(Into::into), to: to.into(), gap }
    }

    /// Times are in milliseconds.
    fn turns(steps: &[(u64, &[&str], bool)]) -> Vec<Option<Turn>> {
        let (mut tenure, begun) = (Tenure::default(), Instant::now());
        let at = |time| begun + Duration::from_millis(time);
        steps.iter().map(|(time, pods, blind)| tenure.take(&labelled(pods), at(*time), *blind)).collect()
    }

    #[test]
    fn a_gap_lasts_from_label_to_label() {
        let found = turns(&[(0, &["a"], false), (5, &["a"], false), (10, &[], false), (41, &["b"], false)]);
        let gap = Gap::Seen(Duration::from_millis(31));
        let lost = Some(Turn::Lost("a".into()));
        assert_eq!(
            found,
            [Some(Turn::Found(Some("a".into()))), None, lost.clone(), Some(handover(Some("a"), "b", gap))]
        );
        let again = turns(&[(0, &["a"], false), (10, &[], false), (12, &["a"], false)]);
        assert_eq!(again[1..], [lost, Some(handover(Some("a"), "a", Gap::Seen(Duration::from_millis(2))))]);
    }

    #[test]
    fn two_pods_with_the_label_leave_no_gap() {
        let found = turns(&[(0, &["b"], false), (5, &["a", "b"], false), (9, &["a"], false)]);
        assert_eq!(found[1..], [None, Some(handover(Some("b"), "a", Gap::None))]);
    }

    #[test]
    fn no_gap_is_told_of_a_time_that_was_not_seen() {
        for steps in [
            [(0, &["a"][..], false), (10, &[], true), (20, &["b"], false)],
            [(0, &["a"], false), (10, &[], false), (20, &["b"], true)],
            [(0, &["a"], false), (10, &["a"], false), (20, &["b"], true)],
        ] {
            assert_eq!(turns(&steps)[2], Some(handover(Some("a"), "b", Gap::Unseen)), "{steps:?}");
        }
        // How long there was no leader before this command began, is not known.
        assert_eq!(turns(&[(0, &[], false), (9, &["a"], false)])[1], Some(handover(None, "a", Gap::Unseen)));
        let (mut tenure, now) = (Tenure::default(), Instant::now());
        tenure.take(&labelled(&["a"]), now, false);
        tenure.take(&labelled(&[]), now, false);
        tenure.blind();
        assert_eq!(tenure.take(&labelled(&["b"]), now, false), Some(handover(Some("a"), "b", Gap::Unseen)));
    }
}
