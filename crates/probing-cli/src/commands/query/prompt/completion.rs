//! Completion of SQL: tables, columns of the named tables, functions and keywords.

use probing_engine::SchemaNames;
use reedline::{Completer, Span, Suggestion};

use crate::commands::query::prompt::words::{self, KEYWORDS, Kind};

/// Names that a query may use.
#[derive(Debug)]
pub(super) struct SqlNames {
    words: SchemaNames,
}

/// What is offered: the text, and what it is.
type Offer = (String, String);

impl SqlNames {
    pub(super) fn of(words: SchemaNames) -> Self {
        Self { words }
    }

    /// What the word before the cursor may become, and where it begins.
    fn offers(&self, text: &str, whole: &str) -> (usize, Vec<Offer>) {
        let start = text
            .rfind(|letter| !words::is_word(letter))
            .map_or(0, |at| {
                at + text[at..].chars().next().map_or(1, char::len_utf8)
            });
        // Nobody wants names inside of a string.
        let is_quoted = words::tokenize(text).last().is_some_and(|(kind, piece)| {
            *kind == Kind::Text && (piece.len() < 2 || !piece.ends_with('\''))
        });
        if is_quoted {
            return (start, Vec::new());
        }
        let (before, word) = text.split_at(start);
        let last = words::tokenize(before)
            .into_iter()
            .rfind(|(_, piece)| !piece.trim().is_empty());
        let wants_table = matches!(last, Some((Kind::Keyword, keyword))
            if ["FROM", "JOIN", "DESCRIBE"].contains(&keyword.to_ascii_uppercase().as_str()))
            || before.trim_end().ends_with("\\d");
        let tables = self.tables(word);
        if wants_table {
            return (start, tables);
        }
        if let Some((alias, column)) = word.rsplit_once('.') {
            let columns = self.columns(column, whole).into_iter();
            let mut offers: Vec<Offer> = columns
                .map(|(name, what)| (format!("{alias}.{name}"), what))
                .collect();
            offers.extend(tables);
            return (start, offers);
        }
        let mut offers = self.columns(word, whole);
        let functions = self.words.functions.iter();
        offers.extend(
            functions
                .filter(|name| begins(name, word))
                .map(|name| (format!("{name}("), "function".to_owned())),
        );
        if !word.is_empty() {
            offers.extend(tables);
            let keywords = KEYWORDS.iter().filter(|keyword| begins(keyword, word));
            let is_lower = word.chars().all(char::is_lowercase);
            offers.extend(keywords.map(|keyword| {
                let keyword = if is_lower {
                    keyword.to_lowercase()
                } else {
                    (*keyword).to_owned()
                };
                (keyword, "keyword".to_owned())
            }));
        }
        (start, offers)
    }

    fn tables(&self, word: &str) -> Vec<Offer> {
        let tables = self.words.tables.iter();
        tables
            .filter(|table| begins(&table.name, word))
            .map(|table| (table.name.clone(), "table".to_owned()))
            .collect()
    }

    /// Of the tables that the statement names, else of all; each once.
    fn columns(&self, word: &str, whole: &str) -> Vec<Offer> {
        let named: Vec<&str> = words::tokenize(whole)
            .into_iter()
            .filter(|(kind, _)| *kind == Kind::Name)
            .map(|(_, piece)| piece)
            .collect();
        let is_named = |name: &str| named.iter().any(|piece| piece.eq_ignore_ascii_case(name));
        let any = self.words.tables.iter().any(|table| is_named(&table.name));
        let tables = self.words.tables.iter();
        let mut offers: Vec<Offer> = Vec::new();
        for table in tables.filter(|table| !any || is_named(&table.name)) {
            for (column, kind) in &table.columns {
                if begins(column, word) && !offers.iter().any(|(known, _)| known == column) {
                    offers.push((column.clone(), kind.clone()));
                }
            }
        }
        offers
    }
}

fn begins(name: &str, word: &str) -> bool {
    name.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

impl Completer for SqlNames {
    fn complete(&mut self, line: &str, pos: usize) -> Vec<Suggestion> {
        let (start, offers) = self.offers(&line[..pos], line);
        let suggestion = |(value, what): Offer| Suggestion {
            value,
            description: Some(what),
            span: Span::new(start, pos),
            ..Suggestion::default()
        };
        offers.into_iter().map(suggestion).collect()
    }
}

#[cfg(test)]
mod tests {
    use probing_engine::TableNames;

    use super::*;

    fn offered(text: &str) -> Vec<String> {
        let table = |name: &str, columns: &[&str]| TableNames {
            name: name.to_owned(),
            columns: columns
                .iter()
                .map(|column| ((*column).to_owned(), "integer".to_owned()))
                .collect(),
        };
        let names = SqlNames::of(SchemaNames {
            tables: vec![
                table("python.backtrace", &["pid", "func", "file"]),
                table("process.info", &["pid", "folder"]),
            ],
            functions: vec!["first_value".to_owned()],
        });
        let (text, rest) = text.split_once('|').unwrap();
        let (_, offers) = names.offers(text, &format!("{text}{rest}"));
        offers.into_iter().map(|(offer, _)| offer).collect()
    }

    #[test]
    fn tables_and_columns_are_offered_where_they_belong() {
        assert_eq!(
            offered("select * from p|"),
            ["python.backtrace", "process.info"]
        );
        assert_eq!(offered("select * from python.b|"), ["python.backtrace"]);
        assert_eq!(
            offered("select f| from process.info"),
            ["folder", "first_value(", "false", "filter", "from", "full"]
        );
        assert_eq!(offered("SELECT FU|"), ["func", "FULL"]);
        assert_eq!(offered("select b.fi| from python.backtrace b"), ["b.file"]);
        assert_eq!(offered("\\d proc|"), ["process.info"]);
        assert_eq!(offered("select x fro|"), ["from"]);
        assert_eq!(offered("select 'f|"), Vec::<String>::new());
    }
}
