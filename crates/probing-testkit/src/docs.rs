//! Documents that are made from code, so that they stay true.

use std::path::PathBuf;

use crate::root;

/// A generated file and what it should say.
#[derive(Debug)]
pub struct Document {
    pub path: PathBuf,
    pub text: String,
}

pub fn documents() -> Vec<Document> {
    vec![
        Document {
            path: root().join("docs/environment.md"),
            text: probing_proto::env::reference(),
        },
        Document {
            path: root().join("docs/tables.md"),
            text: probing_engine::reference(),
        },
    ]
}
