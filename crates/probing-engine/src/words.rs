//! The names that a query may use, for those who help typing it.

use datafusion::functions::all_default_functions;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::functions_window::all_default_window_functions;
use probing_client::Members;

use crate::arrays;
use crate::engine::Engine;
use crate::functions;
use crate::recorded;
use crate::sight::Sight;
use crate::table::WHOSE;
use crate::tables;

/// Names of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    pub tables: Vec<TableWords>,
    /// In the order of the alphabet.
    pub functions: Vec<String>,
}

/// A table, with its columns and their types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableWords {
    pub name: String,
    pub columns: Vec<(String, String)>,
}

impl Engine {
    /// What can be asked of these targets now.
    pub fn words(&self, members: &Members) -> Words {
        let sight = Sight::of(members);
        let table = |table: &&crate::table::Table| TableWords {
            name: table.name.to_owned(),
            columns: table
                .all_columns()
                .map(|column| (column.name.to_owned(), column.kind.word().to_owned()))
                .collect(),
        };
        let ours = functions::ALL.iter().map(|function| {
            let name = function.call.split('(').next();
            name.unwrap_or_default().to_owned()
        });
        let scalar = all_default_functions()
            .into_iter()
            .map(|function| function.name().to_owned());
        let aggregate = all_default_aggregate_functions()
            .into_iter()
            .map(|function| function.name().to_owned());
        let window = all_default_window_functions()
            .into_iter()
            .map(|function| function.name().to_owned());
        let mut functions: Vec<String> =
            ours.chain(scalar).chain(aggregate).chain(window).collect();
        functions.sort();
        functions.dedup();
        let recorded = recorded::names(&sight).into_iter().map(|name| TableWords {
            columns: recorded_columns(&sight, &name),
            name,
        });
        Words {
            tables: tables::ALL.iter().map(table).chain(recorded).collect(),
            functions,
        }
    }
}

fn recorded_columns(sight: &Sight, name: &str) -> Vec<(String, String)> {
    let whose = WHOSE
        .iter()
        .map(|column| (column.name.to_owned(), column.kind.word().to_owned()));
    let own = recorded::columns(name, sight).into_iter();
    whose
        .chain(own.map(|column| (column.name, arrays::word(column.kind).to_owned())))
        .collect()
}
