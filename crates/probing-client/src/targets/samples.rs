//! Many readings of the stacks of targets, wherever they are.

use std::thread;

use crate::agent;
use crate::error::ClientError;
use crate::sampling::samples::{self, Plan, Samples};
use crate::sampling::ticker::Stop;
use crate::targets::set::Member;
use crate::targets::target::{Remote, Target};

/// Samples several processes at the same time, as one picture in which each is a call of its own. `on_reading` sees
/// the first of them. Those that could not be sampled are told apart.
pub fn sample_each(
    members: &[Member],
    plan: &Plan,
    stop: &Stop,
    on_reading: impl FnMut(&Samples) + Send,
) -> (Option<Samples>, Vec<(Member, ClientError)>) {
    let mut on_reading = Some(on_reading);
    let outcomes: Vec<Result<Samples, ClientError>> = thread::scope(|scope| {
        let sampling: Vec<_> = members
            .iter()
            .map(|member| {
                let mut watch = on_reading.take();
                scope.spawn(move || {
                    stop.join();
                    let on_reading = |samples: &Samples| {
                        if let Some(watch) = &mut watch {
                            watch(samples);
                        }
                    };
                    member.target.sample(plan, stop, on_reading)
                })
            })
            .collect();
        let ended = sampling.into_iter().map(thread::ScopedJoinHandle::join);
        // One that panicked gave nothing.
        ended
            .map(|ended| ended.unwrap_or(Err(ClientError::Gone)))
            .collect()
    });
    let (mut all, mut failures) = (None::<Samples>, Vec::new());
    for (member, outcome) in members.iter().zip(outcomes) {
        match outcome {
            Ok(samples) => {
                let none = || Samples::none(samples.pid, plan);
                all.get_or_insert_with(none).add_all(&member.who, samples);
            }
            Err(error) => failures.push((member.clone(), error)),
        }
    }
    (all, failures)
}

impl Target {
    /// Many readings of its stacks, counted. `on_reading` sees what there is after each.
    pub fn sample(
        &self,
        plan: &Plan,
        stop: &Stop,
        on_reading: impl FnMut(&Samples),
    ) -> Result<Samples, ClientError> {
        match self {
            Self::Remote(Remote { node, pid }) => {
                agent::sample((node, *pid), plan, stop, on_reading)
            }
            _ => samples::sample(&self.subject()?, plan, stop, on_reading),
        }
    }
}
