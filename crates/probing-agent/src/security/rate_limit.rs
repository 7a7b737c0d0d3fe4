//! Rate limits: permitted addresses, and the delay of answers to wrong tokens.
//!
//! Only wrong tokens are counted, and only they wait: a right one is served at once, whatever else comes from its address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// Wrong tokens from one network before it is told to come back later.
const MAX_FAILURES: u32 = 10;
/// After so long; a failure that long ago is forgotten.
const LOCKOUT_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer each failure is kept waiting for its answer than the one before.
const DELAY: Duration = Duration::from_millis(100);
/// Networks that are remembered. Beyond, the oldest is forgotten.
const MAX_NETWORKS: usize = 4096;

/// The addresses that one machine or one site may have as it likes, which count as one: all of loopback, an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Network {
    Loopback,
    Address(IpAddr),
    /// The first 64 bits.
    Prefix([u16; 4]),
}

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Self::Loopback;
        }
        match address {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::Prefix([a, b, c, d])
            }
            IpAddr::V4(_) => Self::Address(address),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    allow: Vec<IpNet>,
    failures: Mutex<HashMap<Network, Failures>>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

/// What becomes of a wrong token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// How long its answer has to wait.
    pub(crate) delay: Duration,
    /// After how long to come back, when there were too many.
    pub(crate) come_back: Option<Duration>,
}

impl RateLimiter {
    pub(crate) fn new(allow: Vec<IpNet>) -> Self {
        Self {
            allow,
            failures: Mutex::default(),
        }
    }

    /// Whether this address may say anything at all.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|range| range.contains(&address))
    }

    /// A wrong token came from there.
    pub(crate) fn failed(&self, address: IpAddr, now: Instant) -> Verdict {
        let mut all = self.failures();
        let is_old =
            |known: &Failures| now.saturating_duration_since(known.last) >= LOCKOUT_TIMEOUT;
        if all.len() >= MAX_NETWORKS {
            all.retain(|_, known| !is_old(known));
        }
        if all.len() >= MAX_NETWORKS {
            let oldest = all.iter().min_by_key(|(_, known)| known.last);
            if let Some(oldest) = oldest.map(|(network, _)| *network) {
                all.remove(&oldest);
            }
        }
        let none = Failures {
            count: 0,
            last: now,
        };
        let known = all.entry(Network::of(address)).or_insert(none);
        if is_old(known) {
            known.count = 0;
        }
        known.count = known.count.saturating_add(1);
        known.last = now;
        Verdict {
            delay: DELAY * known.count.min(MAX_FAILURES),
            come_back: (known.count > MAX_FAILURES).then_some(LOCKOUT_TIMEOUT),
        }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Network, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn only_addresses_in_the_ranges_are_admitted() {
        let door = RateLimiter::new(vec!["10.0.0.0/24".parse().unwrap()]);
        assert!(door.admits(address(7)));
        // The same address, as a socket of both families tells it.
        assert!(door.admits("::ffff:10.0.0.7".parse().unwrap()));
        assert!(!door.admits("10.0.1.7".parse().unwrap()));
        assert!(!door.admits("::1".parse().unwrap()));
        assert!(RateLimiter::default().admits(address(7)));
    }

    #[test]
    fn wrong_tokens_wait_longer_each_time() {
        let (door, now) = (RateLimiter::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..MAX_FAILURES {
            let verdict = door.failed(address(1), now);
            assert_eq!(verdict.come_back, None);
            delays.push(verdict.delay);
        }
        assert!(delays.is_sorted() && delays[0] == DELAY);
        assert_eq!(
            door.failed(address(1), now).come_back,
            Some(LOCKOUT_TIMEOUT)
        );
        assert_eq!(door.failed(address(2), now).come_back, None);
        let later = door.failed(address(1), now + LOCKOUT_TIMEOUT);
        assert_eq!((later.delay, later.come_back), (DELAY, None));
    }

    #[test]
    fn addresses_that_one_machine_may_have_count_as_one() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(network("127.0.0.1"), network("127.99.3.4"));
        assert_eq!(network("127.0.0.1"), network("::1"));
        assert_eq!(network("127.0.0.1"), network("::ffff:127.0.0.2"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::9"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("10.0.0.1"), network("::ffff:10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }

    #[test]
    fn however_many_fail_few_are_remembered() {
        let (door, now) = (RateLimiter::default(), Instant::now());
        for number in 0..10_000_u32 {
            door.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(door.failures().len() <= MAX_NETWORKS);
    }
}
