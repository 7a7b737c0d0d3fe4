//! Limits of connections and of work: separate places for unauthenticated clients, for clients, and for control.
//!
//! Places for connections and for work: some for clients that have not shown who they are, others for those that
//! have, and some of these for control alone.
//!
//! A flood of connections without a token takes no place from anybody who has one. Where there are too many, the oldest that
//! has not shown a token is dropped, of the network that has most of them: who has a token shows it at once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use probing_proto::agent::Role;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::http::refusal::Refused;
use crate::security::rate_limit::Network;

/// Connections at the same time of clients that have shown a token, conversations with probes among them.
const MAX_CONNECTIONS: usize = 512;
/// The number of these that are for control only.
const CONNECTIONS_FOR_CONTROL: usize = 64;
/// Connections at the same time that have not shown a token.
const MAX_UNKNOWN: usize = 512;
/// Of these, from one network.
const MAX_UNKNOWN_OF_NETWORK: usize = 256;
/// Clients from outside `--allow` that are told so at the same time; others are told nothing.
const MAX_TURNED_AWAY: usize = 16;
/// Requests that are answered at the same time: a probe has room for 64 clients, and others want some of it.
pub(crate) const MAX_TURNS: usize = 24;
/// The number of these that are for control only.
const TURNS_FOR_CONTROL: usize = 8;

/// All of them.
pub(crate) struct Capacity {
    unknown: Mutex<Unknown>,
    connections: Pool,
    turns: Pool,
    turned_away: Arc<Semaphore>,
}

/// Permits, of which observers may have a part only.
#[derive(Debug)]
struct Pool {
    all: Arc<Semaphore>,
    for_observers: Arc<Semaphore>,
}

/// One of a [`Pool`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _one: OwnedSemaphorePermit,
    _of_observers: Option<OwnedSemaphorePermit>,
}

impl Pool {
    fn new(all: usize, for_control: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            for_observers: Arc::new(Semaphore::new(all - for_control)),
        }
    }

    fn try_take(&self, role: Role) -> Option<Permit> {
        let of_observers = match role {
            Role::Observe => Some(Arc::clone(&self.for_observers).try_acquire_owned().ok()?),
            Role::Control => None,
        };
        Some(Permit {
            _one: Arc::clone(&self.all).try_acquire_owned().ok()?,
            _of_observers: of_observers,
        })
    }

    async fn take(&self, role: Role) -> Option<Permit> {
        // First what only observers wait for, so that those who wait for it keep nobody else waiting.
        let of_observers = match role {
            Role::Observe => Some(Arc::clone(&self.for_observers).acquire_owned().await.ok()?),
            Role::Control => None,
        };
        Some(Permit {
            _one: Arc::clone(&self.all).acquire_owned().await.ok()?,
            _of_observers: of_observers,
        })
    }
}

/// Connections that have not shown a token, in the order in which they came.
#[derive(Debug, Default)]
struct Unknown {
    next: u64,
    all: BTreeMap<u64, PendingConnection>,
}

#[derive(Debug)]
struct PendingConnection {
    network: Network,
    task: Option<AbortHandle>,
}

impl Unknown {
    /// The one that has to go before another of this network comes.
    fn surplus(&self, network: Network) -> Option<u64> {
        let mut counts: HashMap<Network, usize> = HashMap::new();
        for knock in self.all.values() {
            *counts.entry(knock.network).or_default() += 1;
        }
        let crowded = if counts.get(&network).copied().unwrap_or(0) >= MAX_UNKNOWN_OF_NETWORK {
            network
        } else if self.all.len() >= MAX_UNKNOWN {
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        let mut oldest = self.all.iter();
        let oldest = oldest.find(|(_, knock)| knock.network == crowded);
        oldest.map(|(number, _)| *number)
    }
}

impl Capacity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            unknown: Mutex::default(),
            connections: Pool::new(MAX_CONNECTIONS, CONNECTIONS_FOR_CONTROL),
            turns: Pool::new(MAX_TURNS, TURNS_FOR_CONTROL),
            turned_away: Arc::new(Semaphore::new(MAX_TURNED_AWAY)),
        })
    }

    /// A connection from this network, which has shown nothing yet. One that came before may have to go.
    pub(crate) fn knock(self: &Arc<Self>, network: Network) -> Arc<ConnectionSlot> {
        let mut unknown = self.unknown();
        let dropped = unknown
            .surplus(network)
            .and_then(|oldest| unknown.all.remove(&oldest));
        let number = unknown.next;
        unknown.next += 1;
        let task = None;
        unknown
            .all
            .insert(number, PendingConnection { network, task });
        drop(unknown);
        if let Some(task) = dropped.and_then(|knock| knock.task) {
            task.abort();
        }
        self.entrance(Some(number))
    }

    /// A connection of who needs no token: the kernel says who it is.
    pub(crate) fn known(self: &Arc<Self>) -> Arc<ConnectionSlot> {
        self.entrance(None)
    }

    fn entrance(self: &Arc<Self>, number: Option<u64>) -> Arc<ConnectionSlot> {
        Arc::new(ConnectionSlot {
            places: Arc::clone(self),
            number,
            permit: Mutex::default(),
        })
    }

    /// Room for a refusal to an address outside the ranges.
    pub(crate) fn to_turn_away(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turned_away).try_acquire_owned().ok()
    }

    /// Waits until a request of this role may be answered.
    pub(crate) async fn turn(&self, role: Role) -> Option<Permit> {
        self.turns.take(role).await
    }

    /// Whether nobody is here who has shown a token.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.all.available_permits() == MAX_CONNECTIONS
    }

    /// Until nobody is here any more.
    pub(crate) async fn wait_until_empty(&self) {
        drop(
            self.connections
                .all
                .acquire_many(MAX_CONNECTIONS as u32)
                .await,
        );
    }

    fn unknown(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capacity").finish_non_exhaustive()
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<Capacity>,
    /// Among those that have not shown a token.
    number: Option<u64>,
    permit: Mutex<Option<Permit>>,
}

impl ConnectionSlot {
    /// Who is ended when it has to go.
    pub(crate) fn served_by(&self, task: AbortHandle) {
        let mut unknown = self.places.unknown();
        let knock = self.number.and_then(|number| unknown.all.get_mut(&number));
        if let Some(knock) = knock {
            knock.task = Some(task);
        }
    }

    /// It has shown a token of this role: from now on it has a place of its own, and is dropped for nobody.
    pub(crate) fn admit(&self, role: Role) -> Result<(), Refused> {
        let permit = self.places.connections.try_take(role).ok_or_else(|| {
            let words = "the agent has more connections than it can serve";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, words).hint("try again")
        })?;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        self.leave();
        Ok(())
    }

    fn leave(&self) {
        if let Some(number) = self.number {
            self.places.unknown().all.remove(&number);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> Network {
        Network::of([10, 0, 0, last].into())
    }

    #[test]
    fn the_oldest_of_the_most_crowded_network_goes_first() {
        let places = Capacity::new();
        let crowd: Vec<_> = (0..MAX_UNKNOWN_OF_NETWORK)
            .map(|_| places.knock(network(1)))
            .collect();
        let others: Vec<_> = (0..MAX_UNKNOWN - MAX_UNKNOWN_OF_NETWORK)
            .map(|number| places.knock(network(2 + (number % 4) as u8)))
            .collect();
        let waits = |entrance: &ConnectionSlot| {
            let number = entrance.number.unwrap();
            places.unknown().all.contains_key(&number)
        };
        assert!(crowd.iter().chain(&others).all(|one| waits(one)));
        let newest = places.knock(network(9));
        assert!(waits(&newest) && !waits(&crowd[0]) && waits(&crowd[1]));
        assert!(others.iter().all(|one| waits(one)));
        // Also of the crowd itself, the newest is heard.
        let mine = places.knock(network(1));
        assert!(waits(&mine) && !waits(&crowd[1]));
        // Who has shown a token is dropped for nobody.
        mine.admit(Role::Control).unwrap();
        assert!(!waits(&mine) && !places.is_empty());
        drop((crowd, others, newest, mine));
        assert!(places.unknown().all.is_empty() && places.is_empty());
    }

    #[test]
    fn observers_leave_room_for_control() {
        let places = Capacity::new();
        let take = |role| {
            let entrance = places.knock(network(1));
            entrance.admit(role).map(|()| entrance)
        };
        let observers: Vec<_> = std::iter::from_fn(|| take(Role::Observe).ok()).collect();
        assert_eq!(observers.len(), MAX_CONNECTIONS - CONNECTIONS_FOR_CONTROL);
        assert!(take(Role::Control).is_ok());
        let turns = std::iter::from_fn(|| places.turns.try_take(Role::Observe));
        let turns: Vec<_> = turns.collect();
        assert_eq!(turns.len(), MAX_TURNS - TURNS_FOR_CONTROL);
        assert!(places.turns.try_take(Role::Control).is_some());
    }
}
