//! Which addresses may knock, and for how long those that showed wrong tokens are not heard.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// Wrong tokens from one address before it is not heard any more.
const MOST_FAILURES: u32 = 10;
/// For so long; a failure that long ago is forgotten.
const CLOSED: Duration = Duration::from_secs(30);
/// How much longer each failure is kept waiting for its answer than the one before.
const DELAY: Duration = Duration::from_millis(100);
/// Addresses that are remembered. Beyond, the oldest is forgotten.
const MOST_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Door {
    allow: Vec<IpNet>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Door {
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

    /// For how long it is not heard.
    pub(crate) fn closed_for(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let failures = *self.failures().get(&address.to_canonical())?;
        let left = CLOSED.saturating_sub(now.saturating_duration_since(failures.last));
        (failures.count >= MOST_FAILURES && !left.is_zero()).then_some(left)
    }

    /// It showed a wrong token: how long its answer has to wait.
    pub(crate) fn failed(&self, address: IpAddr, now: Instant) -> Duration {
        let mut all = self.failures();
        let is_old = |known: &Failures| now.saturating_duration_since(known.last) >= CLOSED;
        if all.len() >= MOST_ADDRESSES {
            all.retain(|_, known| !is_old(known));
        }
        if all.len() >= MOST_ADDRESSES {
            let oldest = all.iter().min_by_key(|(_, known)| known.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                all.remove(&oldest);
            }
        }
        let none = Failures {
            count: 0,
            last: now,
        };
        let known = all.entry(address.to_canonical()).or_insert(none);
        if is_old(known) {
            known.count = 0;
        }
        known.count += 1;
        known.last = now;
        DELAY * known.count.min(MOST_FAILURES)
    }

    /// It showed a right one.
    pub(crate) fn succeeded(&self, address: IpAddr) {
        self.failures().remove(&address.to_canonical());
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
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
        let door = Door::new(vec!["10.0.0.0/24".parse().unwrap()]);
        assert!(door.admits(address(7)));
        // The same address, as a socket of both families tells it.
        assert!(door.admits("::ffff:10.0.0.7".parse().unwrap()));
        assert!(!door.admits("10.0.1.7".parse().unwrap()));
        assert!(!door.admits("::1".parse().unwrap()));
        assert!(Door::default().admits(address(7)));
    }

    #[test]
    fn who_fails_too_often_is_not_heard_for_a_while() {
        let (door, now) = (Door::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..MOST_FAILURES {
            assert_eq!(door.closed_for(address(1), now), None);
            delays.push(door.failed(address(1), now));
        }
        assert!(delays.is_sorted() && delays[0] == DELAY);
        assert_eq!(door.closed_for(address(1), now), Some(CLOSED));
        assert_eq!(door.closed_for(address(2), now), None);
        assert_eq!(door.closed_for(address(1), now + CLOSED), None);
        assert_eq!(door.failed(address(1), now + CLOSED), DELAY);
        door.succeeded(address(1));
        assert_eq!(door.failed(address(1), now), DELAY);
    }

    #[test]
    fn however_many_fail_few_are_remembered() {
        let (door, now) = (Door::default(), Instant::now());
        for number in 0..10_000_u32 {
            door.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(door.failures().len() <= MOST_ADDRESSES);
    }
}
