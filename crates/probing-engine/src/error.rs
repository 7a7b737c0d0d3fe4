//! Errors of queries, with their hints.

pub(crate) mod spelling;

use std::error::Error;
use std::time::Duration;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use probing_client::{AgentError, ClientError};
use probing_proto::agent::RefusalKind;

use crate::error::spelling::nearest;
use crate::snapshot::target_snapshot::UnreadTarget;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It is no SQL.
    #[error("{message}{}", shown_at(.place.as_ref()))]
    Syntax {
        message: String,
        /// The line, and where in it.
        place: Option<(String, usize)>,
    },
    #[error("no statement")]
    Empty,
    #[error("more than one statement: {count}")]
    Several { count: usize },
    /// It would change something.
    #[error("queries only read: {statement} is not possible here")]
    NotReading { statement: String },
    #[error("no such table: {name}")]
    NoTable {
        name: String,
        nearest: Option<String>,
    },
    #[error("no such column: {name}")]
    NoColumn {
        name: String,
        nearest: Option<String>,
        /// Those that there are.
        known: Vec<String>,
    },
    /// `SELECT rank, *`
    #[error("column selected twice: {name}")]
    SelectedTwice {
        name: String,
        /// Whether the query has a `*`, which may be where it comes from.
        has_star: bool,
    },
    #[error("not enough memory for this query: {message}")]
    TooLarge { message: String },
    /// More than somebody can look at, or a program has to keep.
    #[error("more than {megabytes} MB of rows to show at once")]
    TooMuch { megabytes: usize },
    #[error("more than {most} rows for one answer")]
    TooMany { most: usize },
    #[error("no answer within {} s: the query was stopped", .time.as_secs_f64())]
    TooLong { time: Duration },
    /// None of the targets could be read.
    #[error("{}", blind(.missing))]
    Blind { missing: Vec<UnreadTarget> },
    #[error("the query was stopped")]
    Stopped,
    /// The targets are on another machine, whose agent says this.
    #[error(transparent)]
    Remote(#[from] ClientError),
    #[error("{message}")]
    Failed { message: String },
    #[error("cannot start the engine: {source}")]
    NotStarted {
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write: {source}")]
    NotWritten {
        #[source]
        source: std::io::Error,
    },
}

impl EngineError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoTable { nearest, .. } => match nearest {
                Some(nearest) => format!("did you mean {nearest}? `SHOW TABLES` lists all"),
                None => "`SHOW TABLES` lists all tables".to_owned(),
            },
            Self::NoColumn { nearest, known, .. } => match nearest {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("there are: {}", known.join(", ")),
            },
            Self::NotReading { .. } => {
                "SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW TABLES are; `eval` runs code in a target".to_owned()
            }
            Self::Several { .. } => "run the statements one after the other".to_owned(),
            Self::Empty => "for example: SELECT func, file, lineno FROM python.backtrace".to_owned(),
            Self::SelectedTwice { name, has_star } => {
                let why = if *has_star { "`*` has it already: " } else { "" };
                let renamed = quoted(&format!("the_{name}"));
                format!("{why}leave it out, or rename it: {} AS {renamed}", quoted(name))
            }
            Self::TooMuch { .. } | Self::TooMany { .. } => {
                "select fewer rows (LIMIT), or stream them: --csv, --arrow, --parquet FILE".to_owned()
            }
            Self::TooLong { .. } => "allow more time, or select fewer rows".to_owned(),
            Self::TooLarge { .. } => "select fewer rows or columns, or aggregate them".to_owned(),
            Self::Blind { missing } => match missing.as_slice() {
                [only] => return only.why.hint.clone(),
                _ => return None,
            },
            Self::Remote(error) => return error.hint(),
            Self::Syntax { .. } | Self::Stopped | Self::Failed { .. } | Self::NotStarted { .. } | Self::NotWritten { .. } => return None,
        };
        Some(hint)
    }

    /// Whether the text could not be understood at all.
    pub fn is_syntax(&self) -> bool {
        let is_refused = |error: &ClientError| matches!(error, ClientError::Agent(AgentError::Refused { refusal, .. }) if refusal.kind == Some(RefusalKind::Syntax));
        match self {
            Self::Syntax { .. } | Self::Empty | Self::Several { .. } => true,
            Self::Remote(error) => is_refused(error),
            _ => false,
        }
    }

    /// Whether no target could be asked.
    pub fn is_blind(&self) -> bool {
        match self {
            Self::Remote(ClientError::Agent(AgentError::Refused { refusal, .. })) => {
                matches!(refusal.kind, Some(RefusalKind::Blind | RefusalKind::Ended))
            }
            Self::Blind { .. } | Self::Remote(_) => true,
            _ => false,
        }
    }

    /// A thread of the engine ended without an answer.
    pub(crate) fn panicked(error: impl Error) -> Self {
        let error = error.to_string();
        // Arrow and the standard library know no other way to say that a value is too long to be held.
        if ["offset overflow", "capacity overflow"]
            .iter()
            .any(|words| error.contains(words))
        {
            let message = "one value of the answer is larger than the memory budget".to_owned();
            return Self::TooLarge { message };
        }
        let message = format!("the engine panicked: {error}");
        Self::Failed { message }
    }

    /// From what the engine says about `sql`.
    pub(crate) fn of(error: DataFusionError, sql: &str) -> Self {
        // However deep in what else went wrong because of it.
        if let DataFusionError::ResourcesExhausted(message) = error.find_root() {
            let message = message.clone();
            return Self::TooLarge { message };
        }
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::of(*inner, sql)
            }
            DataFusionError::Shared(inner) => Self::Failed {
                message: said(&inner),
            },
            DataFusionError::Collection(mut all) if !all.is_empty() => Self::of(all.remove(0), sql),
            DataFusionError::SQL(error, _) => syntax(*error, sql),
            DataFusionError::SchemaError(error, _) => column(*error),
            DataFusionError::ArrowError(error, _) => Self::from(*error),
            error => selected_twice(&said(&error), sql).unwrap_or_else(|| Self::Failed {
                message: said(&error),
            }),
        }
    }
}

/// The engine has no kind of error for that, only words that name the column. Of an expression its own words say more.
fn selected_twice(words: &str, sql: &str) -> Option<EngineError> {
    let (_, rest) = words.split_once("require unique expression names but the expression \"")?;
    let (name, _) = rest.split_once("\" at position ")?;
    let name = name.rsplit('.').next().unwrap_or(name).trim_matches('"');
    let is_plain = |character: char| character.is_alphanumeric() || character == '_';
    let has_star = sql.contains('*') && !sql.to_lowercase().contains("count(*)");
    (!name.is_empty() && name.chars().all(is_plain)).then(|| EngineError::SelectedTwice {
        name: name.to_owned(),
        has_star,
    })
}

impl From<ArrowError> for EngineError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => Self::NotWritten { source },
            error => Self::Failed {
                message: error.to_string(),
            },
        }
    }
}

/// Without the words that say which part of the engine noticed it.
fn said(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let text = text
        .strip_prefix("Error during planning: ")
        .or_else(|| text.strip_prefix("Execution error: "))
        .unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        // A word, and no name.
        Some(first) if letters.as_str().starts_with(char::is_lowercase) => {
            format!("{}{}", first.to_lowercase(), letters.as_str())
        }
        _ => text.to_owned(),
    }
}

fn column(error: SchemaError) -> EngineError {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let known: Vec<String> = valid_fields
                .iter()
                .map(|column| quoted(&column.name))
                .collect();
            let names = valid_fields.iter().map(|column| column.name.as_str());
            EngineError::NoColumn {
                nearest: nearest(&field.name, names).map(quoted),
                name: field.flat_name(),
                known,
            }
        }
        error => EngineError::Failed {
            message: error.to_string(),
        },
    }
}

/// As it must be written in SQL.
fn quoted(name: &str) -> String {
    let is_plain = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_'
    };
    if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn syntax(error: ParserError, sql: &str) -> EngineError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
    };
    // The parser tells the place in words: `… at Line: 1, Column: 8`.
    let (message, place) = match text.rsplit_once(" at Line: ") {
        Some((message, place)) => (message.to_owned(), place_in(sql, place)),
        None => (text, None),
    };
    EngineError::Syntax {
        message: format!("not SQL: {}", lowered(&message)),
        place,
    }
}

fn lowered(message: &str) -> String {
    message
        .replacen("Expected: ", "expected ", 1)
        .replacen("found: ", "found ", 1)
}

fn place_in(sql: &str, place: &str) -> Option<(String, usize)> {
    let (line, column) = place.split_once(", Column: ")?;
    let line = sql
        .lines()
        .nth(line.parse::<usize>().ok()?.checked_sub(1)?)?;
    Some((
        line.to_owned(),
        column.trim().parse::<usize>().ok()?.checked_sub(1)?,
    ))
}

fn shown_at(place: Option<&(String, usize)>) -> String {
    match place {
        Some((line, column)) => format!("\n  {line}\n  {}^", " ".repeat(*column)),
        None => String::new(),
    }
}

fn blind(missing: &[UnreadTarget]) -> String {
    match missing {
        [only] => only.why.message.clone(),
        several => format!("none of {} targets could be read", several.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_too_long_is_no_panic_of_ours() {
        let panicked = |words: &str| EngineError::panicked(std::io::Error::other(words.to_owned()));
        let too_long = panicked("task 3 panicked with message \"offset overflow\"");
        assert!(
            matches!(too_long, EngineError::TooLarge { .. }),
            "{too_long:?}"
        );
        let other = panicked("task 3 panicked with message \"none\"");
        assert!(matches!(other, EngineError::Failed { .. }), "{other:?}");
    }

    #[test]
    fn only_a_column_that_is_selected_twice_is_called_so() {
        let told = |sql: &str, expression: &str| {
            let words = format!(
                "Projections require unique expression names but the expression \"{expression}\" at position 0 and \"{expression}\" at position 1 have the same name. Consider aliasing (\"AS\") one of them."
            );
            let error = EngineError::of(DataFusionError::Plan(words), sql);
            (error.to_string(), error.hint())
        };
        let hint = |words: &str| Some(words.to_owned());
        assert_eq!(
            told("SELECT rank, * FROM t", "t.rank"),
            (
                "column selected twice: rank".to_owned(),
                hint("`*` has it already: leave it out, or rename it: rank AS the_rank")
            )
        );
        assert_eq!(
            told("SELECT x, x FROM t", "t.x"),
            (
                "column selected twice: x".to_owned(),
                hint("leave it out, or rename it: x AS the_x")
            )
        );
        let (message, hint) = told("SELECT min(t.x), min(t.x) FROM t", "min(t.x)");
        assert!(message.contains("\"min(t.x)\" at position 1"), "{message}");
        assert_eq!(hint, None);
    }
}
