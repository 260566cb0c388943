//! Elections that the candidates hold themselves: the lock that they hold, and which pod holds it. The F rules of docs/protocol.md.

use core::net::{IpAddr, SocketAddr};

use crate::{Pod, Timestamp, Uid, Version};

/// The maximum number of characters of a holder's name that count.
pub const LONGEST_IDENTITY: usize = 512;

/// The placeholder in a pattern for the pod's name, address or annotation.
const IDENTITY: &str = "{identity}";

/// The state of a lock that the candidates hold themselves, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FollowedLock {
    /// The operator has not read the lock yet.
    #[default]
    Unread,
    /// The operator can't read the lock at present. The text says why, for people.
    Unknown(String),
    /// The lock has no holder.
    Free(NotHeld),
    /// The lock has a holder.
    Held(LockHolder),
}

/// Why a lock has no holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// There is no such lock.
    Absent,
    /// The lock names no holder.
    Released,
    /// F4: the holder has not renewed the lock for as long as the lock itself allows.
    Expired,
}

/// The holder of a lock, as the lock describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    /// The name by which the holder identifies itself.
    pub identity: String,
    /// The holder's address, if the lock has one beside the name.
    pub address: Option<String>,
    /// A value that changes each time a holder acquires the lock. The same holder can have several in a row.
    pub tenure: String,
    /// The version of the last write to the lock.
    pub version: Version,
    /// The number of times that the lock was acquired, by its own count.
    pub transitions: Option<i64>,
    /// When the holder acquired the lock, by its own clock: for people, and nothing else.
    pub since: Option<Timestamp>,
}

impl FollowedLock {
    /// Whether the operator could read the lock.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Free(_) | Self::Held(_))
    }

    /// Whether the lock says the same as another one, apart from renewals.
    pub fn says_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held(one), Self::Held(other)) => {
                let of = |holder: &LockHolder| LockHolder { version: Version::default(), ..holder.clone() };
                of(one) == of(other)
            }
            (one, other) => one == other,
        }
    }
}

/// The property of a pod by which the holder's name identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// The pod's name.
    PodName,
    /// An address of the pod.
    PodIp,
    /// The value of this annotation of the pod.
    Annotation(String),
}

/// The rule by which a lock's holder is found among the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRule {
    /// The property by which the holder is found.
    pub source: IdentitySource,
    /// The pattern of the holder's whole name, or `None` for the usual one.
    pub pattern: Option<IdentityPattern>,
}

/// A pattern for the holder's name: `{identity}` stands for the pod's own property, and `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityPattern {
    before: String,
    after: String,
}

/// Why the holder is no pod of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// No pod of the group has that name, address or annotation.
    Nobody,
    /// Several pods have it.
    Several,
}

/// The lock that an election follows.
#[derive(Clone, Copy, Debug)]
pub struct Following<'a> {
    /// The rule by which the holder is found among the pods.
    pub rule: &'a IdentityRule,
    /// The state of the lock, as far as it is known.
    pub lock: &'a FollowedLock,
}

impl Following<'_> {
    /// Whether one of these pods holds the lock, and it is the one with this uid.
    pub(super) fn is_held_by<'b>(&self, uid: &Uid, pods: impl Iterator<Item = &'b Pod>) -> bool {
        let FollowedLock::Held(holder) = self.lock else { return false };
        self.rule.find(holder, pods).is_ok_and(|pod| pod.uid == *uid)
    }
}

impl IdentityPattern {
    /// Reads a pattern, or returns `None` if it does not have `{identity}` in it exactly once.
    pub fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.split_once(IDENTITY)?;
        (!after.contains(IDENTITY)).then(|| Self { before: before.into(), after: after.into() })
    }

    /// Whether a holder's name is that of a pod with this value.
    fn fits(&self, value: &str, name: &str) -> bool {
        // The value is taken literally, wherever it stands, because an annotation that the pod's owner writes is no pattern.
        let mut places = name.match_indices(value).map(|(at, _)| (&name[..at], &name[at + value.len()..]));
        places.any(|(before, after)| fits(&self.before, before) && fits(&self.after, after))
    }
}

impl IdentityRule {
    /// The pod that holds the lock. A pod that has finished holds nothing any more, and its address may belong to another one.
    ///
    /// # Errors
    /// Returns the reason why the holder is none of these pods.
    pub fn find<'a>(&self, holder: &LockHolder, pods: impl Iterator<Item = &'a Pod>) -> Result<&'a Pod, Unmapped> {
        let mut found = pods.filter(|pod| !pod.finished && self.is(pod, holder));
        match (found.next(), found.next()) {
            (Some(pod), None) => Ok(pod),
            (None, _) => Err(Unmapped::Nobody),
            (Some(_), Some(_)) => Err(Unmapped::Several),
        }
    }

    fn is(&self, pod: &Pod, holder: &LockHolder) -> bool {
        let name = holder.identity.as_str();
        match (&self.source, &self.pattern) {
            (IdentitySource::PodName, None) => {
                // No pod's name contains this character.
                name.strip_prefix(pod.name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            }
            (IdentitySource::PodName, Some(pattern)) => pattern.fits(&pod.name, name),
            (IdentitySource::PodIp, None) => {
                let shown = address(holder.address.as_deref().unwrap_or(name));
                shown.is_some_and(|shown| pod.addresses().any(|own| own.parse() == Ok(shown)))
            }
            (IdentitySource::PodIp, Some(pattern)) => pod.addresses().any(|own| pattern.fits(own, name)),
            (IdentitySource::Annotation(key), pattern) => {
                let value = pod.annotations.get(key).filter(|value| !value.is_empty());
                value.is_some_and(|value| match pattern {
                    None => value == name,
                    Some(pattern) => pattern.fits(value, name),
                })
            }
        }
    }
}

/// The address in a text that is an address, or an address with a port.
fn address(text: &str) -> Option<IpAddr> {
    let plain = || text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text).parse().ok();
    text.parse().map(|socket: SocketAddr| socket.ip()).ok().or_else(plain)
}

/// Returns whether a text fits a pattern in which `*` stands for any characters.
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The earliest match of each part leaves the most text for the parts after it.
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ip: &str) -> Pod {
        let annotations = [("app/member".to_owned(), format!("member {name}"))].into();
        Pod { name: name.into(), uid: Uid(name.into()), ip: Some(ip.into()), annotations, ..Pod::default() }
    }

    fn found(source: IdentitySource, pattern: Option<&str>, identity: &str) -> Result<&'static str, Unmapped> {
        let mut pods = vec![pod("web-1", "10.0.0.1"), pod("web-10", "fd00::10"), pod("web-2", "10.0.0.2")];
        pods.push(Pod { finished: true, ..pod("web-3", "10.0.0.2") });
        let rule = IdentityRule { source, pattern: pattern.map(|text| IdentityPattern::parse(text).unwrap()) };
        let holder = LockHolder { identity: identity.into(), ..LockHolder::default() };
        let pod = rule.find(&holder, pods.iter())?;
        Ok(["web-1", "web-10", "web-2"].into_iter().find(|name| *name == pod.name).unwrap())
    }

    #[test]
    fn a_holder_is_found_by_name_as_most_programs_write_it() {
        let by_name = |identity| found(IdentitySource::PodName, None, identity);
        assert_eq!(by_name("web-1"), Ok("web-1"));
        assert_eq!(by_name("web-10"), Ok("web-10"));
        assert_eq!(by_name("web-1_0b9a2c5e-6d1f"), Ok("web-1"), "client-go's programs add a random part");
        for other in ["web-11", "web", "web-1-0b9a", "", "_", "web-3", "x web-1"] {
            assert_eq!(by_name(other), Err(Unmapped::Nobody), "{other}");
        }
    }

    #[test]
    fn a_holder_is_found_by_address_with_or_without_a_port() {
        let by_ip = |identity| found(IdentitySource::PodIp, None, identity);
        for (identity, pod) in [
            ("10.0.0.1", "web-1"),
            ("10.0.0.1:8080", "web-1"),
            ("fd00:0:0::10", "web-10"),
            ("[fd00::10]", "web-10"),
            ("[fd00::10]:80", "web-10"),
            // The one that has finished had it before.
            ("10.0.0.2", "web-2"),
        ] {
            assert_eq!(by_ip(identity), Ok(pod), "{identity}");
        }
        for other in ["10.0.0.11", "10.0.0.1:x", "web-1", "fd00::10:80", ""] {
            assert_eq!(by_ip(other), Err(Unmapped::Nobody), "{other}");
        }
        let rule = IdentityRule { source: IdentitySource::PodIp, pattern: None };
        let address = Some("10.0.0.2:80".into());
        let agent = LockHolder { identity: "worker".into(), address, ..LockHolder::default() };
        let pods = [pod("web-1", "10.0.0.1"), pod("web-2", "10.0.0.2")];
        assert_eq!(rule.find(&agent, pods.iter()).map(|pod| pod.name.as_str()), Ok("web-2"));
        let on_one_host = [pod("web-1", "10.0.0.2"), pod("web-2", "10.0.0.2")];
        assert_eq!(rule.find(&agent, on_one_host.iter()), Err(Unmapped::Several));
    }

    #[test]
    fn a_holder_is_found_by_an_annotation() {
        let by = |key: &str, identity| found(IdentitySource::Annotation(key.into()), None, identity);
        assert_eq!(by("app/member", "member web-2"), Ok("web-2"));
        assert_eq!(by("app/member", "member web-3"), Err(Unmapped::Nobody));
        assert_eq!(by("app/other", ""), Err(Unmapped::Nobody));
    }

    #[test]
    fn a_pattern_says_where_in_the_name_the_pod_is() {
        let by = |pattern, identity| found(IdentitySource::PodName, Some(pattern), identity);
        assert_eq!(by("host/{identity}/*", "host/web-1/77"), Ok("web-1"));
        assert_eq!(by("host/{identity}/*", "host/web-10/web-1/"), Ok("web-10"));
        assert_eq!(by("*-{identity}", "eu-web-10"), Ok("web-10"));
        assert_eq!(by("*{identity}*", "web-10"), Err(Unmapped::Several), "web-1 is in it, too");
        assert_eq!(by("{identity}", "web-1_x"), Err(Unmapped::Nobody));
        assert_eq!(by("a*b{identity}", "aXbYbweb-2"), Ok("web-2"));
        assert_eq!(found(IdentitySource::PodIp, Some("{identity}@*"), "10.0.0.1@eu"), Ok("web-1"));
        for wrong in ["", "web-*", "{identity}-{identity}", "{name}"] {
            assert_eq!(IdentityPattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_a_pod_says_of_itself_is_no_pattern() {
        let rule = IdentityRule {
            source: IdentitySource::Annotation("a".into()),
            pattern: IdentityPattern::parse("{identity}/*"),
        };
        let greedy = Pod { annotations: [("a".to_owned(), "*".to_owned())].into(), ..Pod::default() };
        let holder = LockHolder { identity: "web-1/7".into(), ..LockHolder::default() };
        assert_eq!(rule.find(&holder, [greedy].iter()), Err(Unmapped::Nobody));
    }

    #[test]
    fn a_renewal_says_nothing_new() {
        let held = |version, tenure: &str| {
            FollowedLock::Held(LockHolder { version: Version(version), tenure: tenure.into(), ..LockHolder::default() })
        };
        assert!(held(1, "a").says_as(&held(2, "a")) && !held(1, "a").says_as(&held(1, "b")));
        assert!(!held(1, "a").says_as(&FollowedLock::Free(NotHeld::Absent)));
        assert!(!FollowedLock::Free(NotHeld::Expired).says_as(&FollowedLock::Free(NotHeld::Absent)));
    }
}
