//! `/query`: rows by SQL. The query runs here, bounded in time and memory, and never in a target.

use std::io;
use std::time::Duration;

use probing_client::Members;
use probing_engine::{Engine, EngineError, Format, Missing, Summary, Terms};
use probing_proto::agent::{
    ARROW_STREAM, END_TRAILER, MissingTarget, QueryEnd, QueryReport, QueryRequest, Refusal,
    RefusalKind,
};
use probing_proto::message::Failure;

use super::json;
use crate::choice::Choice;
use crate::http::{Conversation, Refused};
use crate::life::Agent;
use crate::routes::Asked;

/// For a query to end.
const LONGEST: Duration = Duration::from_mins(5);
/// An answer in JSON is made whole before it is sent.
const MOST_ROWS: usize = 100_000;

pub(crate) fn rows(
    agent: &Agent,
    mut conversation: Conversation,
    asked: &Asked,
) -> io::Result<Option<Conversation>> {
    let begun = begin(agent, asked);
    let (engine, request, members) = match begun {
        Ok(begun) => begun,
        Err(refused) => {
            conversation.refuse(&refused)?;
            return Ok(None);
        }
    };
    let terms = Terms {
        time: Some(LONGEST),
        ..Terms::default()
    };
    let answer = match engine.blocking_ask(&request.sql, &members, &terms) {
        Ok(answer) => answer,
        Err(error) => {
            conversation.refuse(&refused(&error))?;
            return Ok(None);
        }
    };
    let accept = asked.head.field("accept").unwrap_or_default();
    if accept.contains(ARROW_STREAM) {
        let mut pieces = conversation.pieces(ARROW_STREAM, END_TRAILER)?;
        let mut buffered = io::BufWriter::with_capacity(64 << 10, &mut pieces);
        let written = answer.write(Format::Arrow, &mut buffered);
        drop(buffered);
        let end = match written {
            Ok(summary) => end(&summary, &members),
            // Nobody is there to be told.
            Err(EngineError::NotWritten { source }) => return Err(source),
            Err(error) => QueryEnd {
                took_seconds: 0.0,
                missing: missing(lacking(&error), &members),
                refusal: Some(refused(&error).refusal),
            },
        };
        let end = in_ascii(&serde_json::to_string(&end)?);
        pieces.end(END_TRAILER, &end)?;
        return Ok(None);
    }
    let told = answer.into_json(MOST_ROWS).map_err(|error| refused(&error));
    let told = told.and_then(|(table, summary)| {
        json(&QueryReport {
            columns: table.columns,
            rows: table.rows,
            end: end(&summary, &members),
        })
    });
    match told {
        Ok(json) => Ok(conversation
            .answer(&asked.head, &json)?
            .then_some(conversation)),
        Err(refused) => {
            conversation.refuse(&refused)?;
            Ok(None)
        }
    }
}

fn begin<'a>(
    agent: &'a Agent,
    asked: &Asked,
) -> Result<(&'a Engine, QueryRequest, Members), Refused> {
    let request: QueryRequest = asked.json()?;
    let choice = Choice {
        rank: request.rank,
        ranks: request.ranks.as_deref(),
        pid: request.pid,
        pids: &request.pids,
    };
    let members = choice.members()?;
    let engine = agent.engine().map_err(|error| refused(&error))?;
    Ok((engine, request, members))
}

fn refused(error: &EngineError) -> Refused {
    let (status, kind) = match error {
        error if error.is_syntax() => (400, Some(RefusalKind::Syntax)),
        EngineError::Blind { .. } => (502, Some(RefusalKind::Blind)),
        EngineError::TooLong { .. } => (504, None),
        EngineError::NotStarted { .. } => (503, None),
        _ => (400, None),
    };
    let mut refused = Refused::new(status, error.to_string());
    refused.refusal = Refusal {
        failure: Failure {
            error: error.to_string(),
            hint: error.hint(),
        },
        kind,
    };
    refused
}

fn end(summary: &Summary, members: &Members) -> QueryEnd {
    QueryEnd {
        took_seconds: summary.took.as_secs_f64(),
        missing: missing(&summary.missing, members),
        refusal: None,
    }
}

fn lacking(error: &EngineError) -> &[Missing] {
    match error {
        EngineError::Blind { missing } => missing,
        _ => &[],
    }
}

/// Targets whose rows are missing, and ranks that no process has.
fn missing(missing: &[Missing], members: &Members) -> Vec<MissingTarget> {
    let rank = |one: &Missing| {
        let mut all = members.all.iter();
        all.find(|member| member.pid == one.pid)?.rank
    };
    let unread = missing.iter().map(|one| MissingTarget {
        pid: one.pid,
        rank: rank(one),
        failure: Failure {
            error: one.why.message.clone(),
            hint: one.why.hint.clone(),
        },
    });
    let absent = (!members.missing.is_empty()).then(|| MissingTarget {
        pid: None,
        rank: None,
        failure: Failure::new(format!("no process here has rank {}", members.missing)),
    });
    unread.chain(absent).collect()
}

/// A header field is plain.
fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_ascii() {
            text.push(letter);
            continue;
        }
        let mut units = [0; 2];
        for unit in letter.encode_utf16(&mut units) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_ascii_and_means_the_same() {
        let text = serde_json::to_string("é 🦀 \" \n").unwrap();
        let plain = in_ascii(&text);
        assert!(plain.is_ascii());
        assert_eq!(
            serde_json::from_str::<String>(&plain).unwrap(),
            "é 🦀 \" \n"
        );
    }
}
