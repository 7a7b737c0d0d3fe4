//! What can go wrong with a query, and what to do about it.

use std::error::Error;
use std::time::Duration;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use probing_client::ClientError;
use probing_proto::agent::RefusalKind;

use crate::nearest::nearest;
use crate::sight::Missing;

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
    #[error("nothing was asked")]
    Empty,
    #[error("one statement at a time: there are {count}")]
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
    Blind { missing: Vec<Missing> },
    #[error("the query was stopped")]
    Stopped,
    /// The targets are on another machine, whose agent says this.
    #[error(transparent)]
    Elsewhere(#[from] ClientError),
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
                None => "`SHOW TABLES` lists those that there are".to_owned(),
            },
            Self::NoColumn { nearest, known, .. } => match nearest {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("there are: {}", known.join(", ")),
            },
            Self::NotReading { .. } => {
                "SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW TABLES are; `eval` runs code in a target".to_owned()
            }
            Self::Several { .. } => "ask them one after the other".to_owned(),
            Self::Empty => "for example: SELECT func, file, lineno FROM python.backtrace".to_owned(),
            Self::TooMuch { .. } | Self::TooMany { .. } => {
                "ask for fewer rows (LIMIT), or have them written as they come: --csv, --arrow, --parquet FILE".to_owned()
            }
            Self::TooLong { .. } => "allow more time, or ask for fewer rows".to_owned(),
            Self::TooLarge { .. } => "ask for fewer rows or columns, or aggregate them".to_owned(),
            Self::Blind { missing } => match missing.as_slice() {
                [only] => return only.why.hint.clone(),
                _ => return None,
            },
            Self::Elsewhere(error) => return error.hint(),
            Self::Syntax { .. } | Self::Stopped | Self::Failed { .. } | Self::NotStarted { .. } | Self::NotWritten { .. } => return None,
        };
        Some(hint)
    }

    /// Whether the text could not be understood at all.
    pub fn is_syntax(&self) -> bool {
        let is_refused = |error: &ClientError| matches!(error, ClientError::Agent { refusal, .. } if refusal.kind == Some(RefusalKind::Syntax));
        match self {
            Self::Syntax { .. } | Self::Empty | Self::Several { .. } => true,
            Self::Elsewhere(error) => is_refused(error),
            _ => false,
        }
    }

    /// Whether no target could be asked.
    pub fn is_blind(&self) -> bool {
        match self {
            Self::Elsewhere(ClientError::Agent { refusal, .. }) => {
                matches!(refusal.kind, Some(RefusalKind::Blind | RefusalKind::Ended))
            }
            Self::Blind { .. } | Self::Elsewhere(_) => true,
            _ => false,
        }
    }

    /// A thread of the engine ended without an answer.
    pub(crate) fn panicked(error: impl Error) -> Self {
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
            error => Self::Failed {
                message: said(&error),
            },
        }
    }
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

fn blind(missing: &[Missing]) -> String {
    match missing {
        [only] => only.why.message.clone(),
        several => format!("none of {} targets could be read", several.len()),
    }
}
