//! Names of tables, columns and functions, for completion.

use datafusion::functions::all_default_functions;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::functions_window::all_default_window_functions;
use probing_client::Members;

use crate::columns::WHOSE;
use crate::columns::arrays;
use crate::engine::Engine;
use crate::functions;
use crate::snapshot::target_snapshot::TargetSetSnapshot;
use crate::sources::recorded;
use crate::tables;

/// Names of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaNames {
    pub tables: Vec<TableNames>,
    /// In the order of the alphabet.
    pub functions: Vec<String>,
}

/// A table, with its columns and their types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableNames {
    pub name: String,
    pub columns: Vec<(String, String)>,
}

impl Engine {
    /// What can be asked of these targets now.
    pub fn words(&self, members: &Members) -> SchemaNames {
        let sight = TargetSetSnapshot::of(members);
        let table = |table: &&crate::tables::definition::Table| TableNames {
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
        let recorded = recorded::names(&sight).into_iter().map(|name| TableNames {
            columns: recorded_columns(&sight, &name),
            name,
        });
        SchemaNames {
            tables: tables::ALL.iter().map(table).chain(recorded).collect(),
            functions,
        }
    }
}

fn recorded_columns(sight: &TargetSetSnapshot, name: &str) -> Vec<(String, String)> {
    let whose = WHOSE
        .iter()
        .map(|column| (column.name.to_owned(), column.kind.word().to_owned()));
    let own = recorded::columns(name, sight).into_iter();
    whose
        .chain(own.map(|column| (column.name, arrays::word(column.kind).to_owned())))
        .collect()
}
