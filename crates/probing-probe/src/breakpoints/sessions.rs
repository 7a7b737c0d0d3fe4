//! All stopped threads of a process, and the clients that follow and drive them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use probing_proto::message::breakpoints::{
    BreakpointEvent, DisconnectPolicy, ResumeReason, StopId,
};
use probing_proto::message::{Event, Failure, Message, RequestId};

use crate::breakpoints::session::{self, Order, Session, seen_by};
use crate::breakpoints::{Stops, setting};
use crate::requests::outbox::Outbox;
use crate::requests::worker;

/// Clients of this process that follow.
static FOLLOWERS: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
pub(crate) struct Sessions {
    all: Vec<Arc<Session>>,
    followers: Vec<Follower>,
    last: u32,
}

/// A client that wants to hear of everything.
struct Follower {
    outbox: Arc<Outbox>,
    request: RequestId,
    driving: bool,
}

impl Sessions {
    fn find(&self, stop: StopId) -> Option<&Arc<Session>> {
        self.all.iter().find(|session| session.id == stop)
    }

    fn follower_count(&self) -> u32 {
        self.followers.len() as u32
    }

    fn tell(&self, news: impl Fn(&Arc<Outbox>) -> BreakpointEvent) {
        for follower in &self.followers {
            let news = news(&follower.outbox);
            // A client that does not read misses what is recorded anyway.
            let is_dear = !matches!(
                news,
                BreakpointEvent::Logged { .. } | BreakpointEvent::Changed { .. }
            );
            if is_dear || !follower.outbox.is_full() {
                follower.outbox.push(Message {
                    id: Some(follower.request),
                    event: Event::News(news),
                });
            }
        }
    }

    /// Those that would drive a thread that nobody drives.
    fn willing(&self) -> Option<Arc<Outbox>> {
        let mut willing = self.followers.iter().filter(|follower| follower.driving);
        willing.next().map(|follower| Arc::clone(&follower.outbox))
    }

    fn company_changed(&self) {
        FOLLOWERS.store(self.follower_count(), Ordering::Release);
        for session in &self.all {
            session.set_company(!self.followers.is_empty() || session.driver().is_some());
        }
    }

    pub(crate) fn next_overdue(&self) -> Option<Instant> {
        self.all.iter().filter_map(|it| it.overdue_at()).min()
    }

    pub(crate) fn overdue(&self) -> Vec<Arc<Session>> {
        let overdue = self.all.iter().filter(|session| session.is_overdue());
        overdue.cloned().collect()
    }
}

/// Whether there is anybody to tell.
pub(crate) fn are_followed() -> bool {
    FOLLOWERS.load(Ordering::Acquire) > 0
}

impl Stops {
    pub(crate) fn announce(&self, news: &BreakpointEvent) {
        self.sessions().tell(|_| news.clone());
    }

    pub(crate) fn next_stop(&self) -> StopId {
        let mut sessions = self.sessions();
        sessions.last += 1;
        StopId(sessions.last)
    }

    pub(crate) fn begun(&self, session: &Arc<Session>) {
        self.sessions().all.push(Arc::clone(session));
    }

    /// A thread has stopped, or stopped again.
    pub(crate) fn stopped(&self, session: &Arc<Session>) {
        let sessions = self.sessions();
        if session.driver().is_none() {
            session.set_driver(sessions.willing());
        }
        sessions.company_changed();
        let followers = sessions.follower_count();
        sessions.tell(|outbox| BreakpointEvent::Stopped {
            stop: session.report(Some(outbox), followers),
        });
    }

    /// A thread goes on for good.
    pub(crate) fn ended(&self, session: &Arc<Session>, because: ResumeReason) {
        let mut sessions = self.sessions();
        sessions.all.retain(|other| !Arc::ptr_eq(other, session));
        sessions.tell(|_| session::went_on(session, because));
        drop(sessions);
        session::refuse_rest(session);
    }

    /// Everything goes on.
    pub(crate) fn let_go(&self, because: ResumeReason) {
        let all = self.sessions().all.clone();
        for session in &all {
            session.end(because);
        }
    }

    /// How many threads are stopped now.
    pub(crate) fn count(&self) -> u32 {
        let sessions = self.sessions();
        let stopped = sessions.all.iter().filter(|session| session.stands());
        stopped.count() as u32
    }

    /// Threads that are stopped now.
    pub(crate) fn told(&self, to: &Arc<Outbox>) -> Event {
        let sessions = self.sessions();
        let followers = sessions.follower_count();
        let stopped = sessions.all.iter().filter(|session| session.stands());
        Event::Stops {
            stops: stopped.map(|it| it.report(Some(to), followers)).collect(),
        }
    }

    /// From now on this client hears of everything.
    pub(crate) fn follow(&self, outbox: &Arc<Outbox>, request: RequestId, driving: bool) {
        let mut sessions = self.sessions();
        sessions.followers.push(Follower {
            outbox: Arc::clone(outbox),
            request,
            driving,
        });
        sessions.company_changed();
        if driving {
            let free = sessions.all.iter().filter(|it| it.driver().is_none());
            for session in free {
                session.set_driver(Some(Arc::clone(outbox)));
                sessions.tell(|to| driven(session, to));
            }
        }
        let followers = sessions.follower_count();
        let stopped = sessions.all.iter().filter(|session| session.stands());
        let stops = stopped
            .map(|it| it.report(Some(outbox), followers))
            .collect();
        outbox.push(Message {
            id: Some(request),
            event: Event::Stops { stops },
        });
    }

    /// Whether this client followed under that number; it does not any more.
    pub(crate) fn unfollow(&self, outbox: &Arc<Outbox>, request: RequestId) -> bool {
        let mut sessions = self.sessions();
        let before = sessions.followers.len();
        let is_it = |it: &Follower| Arc::ptr_eq(&it.outbox, outbox) && it.request == request;
        sessions.followers.retain(|follower| !is_it(follower));
        sessions.company_changed();
        sessions.followers.len() != before
    }

    /// A client has gone.
    pub(crate) fn gone(&self, outbox: &Arc<Outbox>) {
        if !self.points().owned_by(outbox).is_empty() {
            let outbox = Arc::clone(outbox);
            let end = move || {
                worker::with_interpreter(|py| setting::disarm_owned(py, &outbox));
            };
            // Without a thread they stay armed until their time is over.
            drop(worker::start(end));
        }
        let mut sessions = self.sessions();
        sessions
            .followers
            .retain(|follower| !Arc::ptr_eq(&follower.outbox, outbox));
        for session in &sessions.all {
            session.forget_orders_of(outbox);
        }
        let is_driven = |session: &&Arc<Session>| {
            let driver = session.driver();
            driver.is_some_and(|driver| Arc::ptr_eq(&driver, outbox))
        };
        let driven_by_it: Vec<_> = sessions.all.iter().filter(is_driven).cloned().collect();
        for session in &driven_by_it {
            session.set_driver(sessions.willing());
            if session.when_gone() == DisconnectPolicy::Resume && session.driver().is_none() {
                session.end(ResumeReason::DriverGone);
            } else {
                sessions.tell(|to| driven(session, to));
            }
        }
        sessions.company_changed();
    }

    /// This client drives a stop from now on.
    pub(crate) fn drive(
        &self,
        outbox: &Arc<Outbox>,
        stop: StopId,
        take: bool,
    ) -> Result<(), Failure> {
        let sessions = self.sessions();
        let session = sessions.find(stop).ok_or_else(|| no_such(stop))?;
        let driver = session.driver();
        let has_another = driver.is_some_and(|driver| !Arc::ptr_eq(&driver, outbox));
        if has_another && !take {
            return Err(
                Failure::new(format!("another client controls stop {}", stop.0))
                    .with_hint("`take` takes control"),
            );
        }
        session.set_driver(Some(Arc::clone(outbox)));
        sessions.company_changed();
        sessions.tell(|to| driven(session, to));
        Ok(())
    }

    /// Gives a stopped thread something to do; what it cannot take comes back.
    pub(crate) fn order(
        &self,
        outbox: &Arc<Outbox>,
        stop: StopId,
        order: Order,
    ) -> Result<(), (Order, Failure)> {
        let session = self.sessions().find(stop).cloned();
        match session {
            Some(session) => session.order(outbox, order),
            None => Err((order, no_such(stop))),
        }
    }

    /// These threads go on, all when none is named; told as they were.
    pub(crate) fn release(
        &self,
        outbox: &Arc<Outbox>,
        wanted: &[StopId],
    ) -> Result<Event, Failure> {
        let sessions = self.sessions();
        let unknown = wanted.iter().find(|stop| sessions.find(**stop).is_none());
        if let Some(stop) = unknown {
            return Err(no_such(*stop));
        }
        let is_wanted = |it: &&Arc<Session>| wanted.is_empty() || wanted.contains(&it.id);
        let released: Vec<_> = sessions.all.iter().filter(is_wanted).cloned().collect();
        let followers = sessions.follower_count();
        drop(sessions);
        let told = released.iter().map(|it| it.report(Some(outbox), followers));
        let stops = told.collect();
        for session in &released {
            session.end(ResumeReason::Asked);
        }
        Ok(Event::Stops { stops })
    }
}

fn driven(session: &Session, to: &Arc<Outbox>) -> BreakpointEvent {
    BreakpointEvent::Driven {
        stop: session.id,
        driver: seen_by(session.driver().as_ref(), Some(to)),
    }
}

fn no_such(stop: StopId) -> Failure {
    Failure::new(format!("no such stop: {}", stop.0))
        .with_hint("`probing stops` lists stopped threads")
}
