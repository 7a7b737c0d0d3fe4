//! Statements that a query may contain: only those that read.
//!
//! Only what reads is let through, by name: whatever else the parser learns to understand is refused.

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{ShowStatementOptions, Statement as Sql};

use crate::error::EngineError;

/// A question, understood as far as its grammar goes.
#[derive(Debug)]
pub(crate) enum Question {
    /// `SELECT …`, or the plan of it.
    Rows(Box<Statement>),
    /// `SHOW TABLES`
    Tables,
    /// `DESCRIBE t`
    Columns(TableReference),
}

impl Question {
    pub(crate) fn parse(sql: &str) -> Result<Self, EngineError> {
        let parsed = DFParserBuilder::new(sql)
            .build()
            .and_then(|mut parser| parser.parse_statements());
        let mut statements = parsed.map_err(|error| EngineError::of(error, sql))?;
        let statement = match (statements.pop_front(), statements.len()) {
            (None, _) => return Err(EngineError::Empty),
            (Some(statement), 0) => statement,
            (Some(_), more) => return Err(EngineError::Several { count: more + 1 }),
        };
        let kind = match &statement {
            Statement::Statement(sql) => kind(sql),
            Statement::Explain(explained) => match explained.statement.as_ref() {
                Statement::Statement(sql) => kind(sql),
                _ => Kind::Other,
            },
            Statement::CreateExternalTable(_) | Statement::CopyTo(_) | Statement::Reset(_) => {
                Kind::Other
            }
        };
        match kind {
            Kind::Query => Ok(Self::Rows(Box::new(statement))),
            Kind::Tables => Ok(Self::Tables),
            Kind::Columns => columns(&statement),
            Kind::Other => Err(EngineError::NotReading {
                statement: first_words(&statement.to_string()),
            }),
        }
    }
}

enum Kind {
    Query,
    Tables,
    Columns,
    Other,
}

fn kind(sql: &Sql) -> Kind {
    match sql {
        // INTO makes a table, FOR UPDATE locks one.
        Sql::Query(query) if query.locks.is_empty() => Kind::Query,
        Sql::Explain { statement, .. } => match statement.as_ref() {
            Sql::Query(_) => Kind::Query,
            _ => Kind::Other,
        },
        Sql::ShowTables { show_options, .. } if is_plain(show_options) => Kind::Tables,
        Sql::ExplainTable { .. } => Kind::Columns,
        _ => Kind::Other,
    }
}

fn is_plain(options: &ShowStatementOptions) -> bool {
    options.to_string().is_empty()
}

fn columns(statement: &Statement) -> Result<Question, EngineError> {
    let (mut tables, _) =
        resolve_table_references(statement, true).map_err(|error| EngineError::of(error, ""))?;
    match tables.pop() {
        Some(table) => Ok(Question::Columns(table)),
        None => Err(EngineError::Empty),
    }
}

/// `CREATE TABLE`, `SET`: enough to know what is meant.
fn first_words(statement: &str) -> String {
    let is_word = |word: &&str| {
        !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_ascii_uppercase() || letter == '_')
    };
    let words: Vec<&str> = statement.split(' ').take_while(is_word).take(3).collect();
    if words.is_empty() {
        "this statement".to_owned()
    } else {
        words.join(" ")
    }
}

/// The tables that a statement names, without those that it defines itself.
pub(crate) fn tables_of(
    state: &SessionState,
    statement: &Statement,
) -> Result<Vec<TableReference>, EngineError> {
    state
        .resolve_table_references(statement)
        .map_err(|error| EngineError::of(error, ""))
}
