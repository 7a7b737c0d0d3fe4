//! A prompt for SQL: history, completion of tables and columns, several lines, `\d`.

mod completion;
mod highlight;
mod words;

use std::io::{self, Write as _};

use probing_engine::SHOW_TABLES;
use probing_proto::paths::History;
use reedline::{Signal, ValidationResult, Validator};

use self::completion::SqlNames;
use self::highlight::SqlColours;
use crate::commands::line_editor::{self, Language, LinePrompt};
use crate::commands::query::{QueryRunner, statements};
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;
use crate::terminal::KeysWait;

const MARK: &str = "sql> ";
const HELP: &str = r"A statement ends with ; and may have several lines; an empty line ends it, too.

  \d            the tables
  \d TABLE      the columns of one
  \?            this text
  \q, Ctrl-D    leave
  Ctrl-C        drop what was typed, stop what runs

Tab completes tables, columns and functions. docs/tables.md has all of them with examples.
";

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    Sql(String),
    Help,
    Leave,
    /// A `\` that means nothing.
    Unknown(&'a str),
}

impl<'a> Input<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.trim();
        let words = text.trim_end_matches(';').trim_end();
        match words.split_once(char::is_whitespace).unwrap_or((words, "")) {
            ("", _) => Self::Nothing,
            (r"\d" | r"\dt", "") => Self::Sql(SHOW_TABLES.to_owned()),
            (r"\d", table) => Self::Sql(format!("DESCRIBE {}", table.trim())),
            (r"\?" | "help", "") => Self::Help,
            (r"\q" | "exit" | "quit", "") => Self::Leave,
            (command, _) if command.starts_with('\\') => Self::Unknown(command),
            _ => Self::Sql(text.to_owned()),
        }
    }
}

pub(super) fn run(asker: &QueryRunner<'_>) -> anyhow::Result<Status> {
    let _keys = KeysWait::begin();
    let members = asker.aim.members()?;
    let colours = terminal::has_colours();
    let language = Language {
        completer: Box::new(SqlNames::of(asker.engine.words(&members))),
        validator: Box::new(Completeness),
        highlighter: Box::new(SqlColours),
        history: History::Sql,
        mark: MARK,
    };
    let mut editor = line_editor::editor(language, colours);
    let count = members.all.len();
    let whom = if count == 1 { "target" } else { "targets" };
    say(&format!(
        "SQL over {count} {whom}. \\d shows the tables, \\? helps, Ctrl-D exits."
    ))?;
    let place = LinePrompt {
        text: String::new(),
        mark: MARK,
    };
    loop {
        // While a line is typed Ctrl-C is a key: what it stops is what comes after it.
        asker.running.renew();
        let text = match editor.read_line(&place)? {
            Signal::Success(text) => text,
            Signal::CtrlD => return Ok(exit::OK),
            _ => continue,
        };
        // The history survives a prompt that is killed.
        editor.sync_history().ok();
        match Input::of(&text) {
            Input::Nothing => {}
            Input::Sql(sql) => ask(asker, &sql)?,
            Input::Help => write!(terminal::stdout(), "{HELP}")?,
            Input::Leave => return Ok(exit::OK),
            Input::Unknown(command) => say(&format!("no such command: {command}; \\? lists them"))?,
        }
    }
}

/// Runs each statement; a failure is shown, and the prompt stays.
fn ask(asker: &QueryRunner<'_>, sql: &str) -> anyhow::Result<()> {
    for statement in statements::split(sql) {
        if let Err(error) = asker.ask(statement) {
            return Ok(errors::print(&error)?);
        }
    }
    Ok(())
}

fn say(text: &str) -> io::Result<()> {
    writeln!(terminal::stderr(), "{text}")
}

/// Asked when Enter is pressed.
struct Completeness;

impl Validator for Completeness {
    fn validate(&self, text: &str) -> ValidationResult {
        if is_complete(text) {
            ValidationResult::Complete
        } else {
            ValidationResult::Incomplete
        }
    }
}

fn is_complete(text: &str) -> bool {
    let last = text.rsplit('\n').next().unwrap_or("");
    match Input::of(text) {
        Input::Sql(_) => {
            text.starts_with('\\')
                || statements::is_complete(text)
                || (text.contains('\n') && last.trim().is_empty())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_sql() {
        assert_eq!(Input::of(" ; "), Input::Nothing);
        assert_eq!(Input::of(r"\d"), Input::Sql(SHOW_TABLES.to_owned()));
        let described = Input::Sql("DESCRIBE python.threads".to_owned());
        assert_eq!(Input::of("\\d  python.threads;\n"), described);
        assert_eq!(Input::of("quit;"), Input::Leave);
        assert_eq!(Input::of(r"\x"), Input::Unknown(r"\x"));
        assert_eq!(Input::of("select 1;"), Input::Sql("select 1;".to_owned()));
    }

    #[test]
    fn a_statement_ends_with_a_semicolon_or_an_empty_line() {
        for text in [
            "select 1;",
            r"\d",
            r"\d python.threads",
            "exit",
            "",
            "select 1\n",
            "select\n1\n  ",
        ] {
            assert!(is_complete(text), "{text:?}");
        }
        for text in ["select 1", "select\n1", "select ';", "show tables"] {
            assert!(!is_complete(text), "{text:?}");
        }
    }
}
