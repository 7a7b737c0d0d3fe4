//! Several queries about the same moment, as a capture needs them.

use std::sync::Arc;

use probing_client::Members;
use probing_proto::report::BacktraceReport;

use crate::answer::{QueryDeadline, QueryLimits, ResultStream};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSetSnapshot};

/// Targets that are looked at once, whatever is asked. (Those of another machine are looked at there, for each question.)
#[derive(Debug)]
pub struct EngineSnapshot<'a> {
    engine: &'a Engine,
    members: Members,
    sight: Arc<TargetSetSnapshot>,
}

impl Engine {
    /// All that there is to know of these targets, read when it is first asked for.
    pub fn moment(&self, members: Members) -> EngineSnapshot<'_> {
        let sight = TargetSetSnapshot::of(&members);
        sight.need(Needs {
            locals: true,
            native: true,
        });
        EngineSnapshot {
            engine: self,
            members,
            sight: Arc::new(sight),
        }
    }
}

impl EngineSnapshot<'_> {
    /// The stacks that the tables tell of.
    pub fn stacks(&self) -> Vec<Result<BacktraceReport, ReadFailure>> {
        let seen = self.sight.all.iter();
        seen.map(|seen| seen.stacks().cloned()).collect()
    }

    /// For a thread that waits.
    pub fn ask(&self, sql: &str, terms: &QueryLimits) -> Result<ResultStream, EngineError> {
        if self.members.node().is_some() {
            return self.engine.blocking_ask(sql, &self.members, terms);
        }
        let patience = QueryDeadline::of(terms);
        let planned = self.engine.planned(sql, &self.sight, terms)?;
        Ok(self.engine.answered(planned, patience))
    }
}
