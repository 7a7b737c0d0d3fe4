//! The selection of threads of a target: by the word `main`, a name or an id.
//!
//! Parsed where a user or a program names threads; compared where the threads are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The word for the main thread, whatever its name is.
const MAIN: &str = "main";

/// One thread, as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ThreadSelector {
    Main,
    /// A name, the kernel's id or Python's id (`threading.get_ident()`).
    NameOrId(String),
}

impl From<String> for ThreadSelector {
    fn from(text: String) -> Self {
        if text == MAIN {
            Self::Main
        } else {
            Self::NameOrId(text)
        }
    }
}

impl From<ThreadSelector> for String {
    fn from(selector: ThreadSelector) -> Self {
        match selector {
            ThreadSelector::Main => MAIN.to_owned(),
            ThreadSelector::NameOrId(text) => text,
        }
    }
}

impl fmt::Display for ThreadSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Main => MAIN,
            Self::NameOrId(text) => text,
        })
    }
}

/// What a thread is known by.
#[derive(Debug, Clone, Copy)]
pub struct ThreadNames<'a> {
    pub is_main: bool,
    pub name: Option<&'a str>,
    /// Python's id; 0 for a thread that Python does not know.
    pub ident: u64,
    /// The kernel's id.
    pub thread_id: Option<u32>,
}

impl ThreadSelector {
    pub fn selects(&self, thread: ThreadNames<'_>) -> bool {
        let wanted = match self {
            Self::Main => return thread.is_main,
            Self::NameOrId(wanted) => wanted,
        };
        let id: Option<u64> = wanted.parse().ok().filter(|id| *id != 0);
        thread.name == Some(wanted)
            || id
                .is_some_and(|id| id == thread.ident || thread.thread_id.map(u64::from) == Some(id))
    }
}

/// Which threads of a target an answer is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum ThreadFilter {
    #[default]
    All,
    Main,
    These(ThreadSelector),
}

impl ThreadFilter {
    /// As requests name them: the main thread when neither `all` nor one is asked for.
    pub fn new(all: bool, thread: Option<ThreadSelector>) -> Self {
        match thread {
            Some(thread) => Self::These(thread),
            None if all => Self::All,
            None => Self::Main,
        }
    }

    pub fn selects(&self, thread: ThreadNames<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Main => thread.is_main,
            Self::These(selector) => selector.selects(thread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN_THREAD: ThreadNames<'_> = ThreadNames {
        is_main: true,
        name: Some("MainThread"),
        ident: 139_900,
        thread_id: Some(4242),
    };
    const LOADER: ThreadNames<'_> = ThreadNames {
        is_main: false,
        name: Some("loader-3"),
        ident: 139_901,
        thread_id: Some(4243),
    };
    const NATIVE: ThreadNames<'_> = ThreadNames {
        is_main: false,
        name: None,
        ident: 0,
        thread_id: Some(4244),
    };

    #[track_caller]
    fn check(text: &str, selected: [bool; 3]) {
        let selector = ThreadSelector::from(text.to_owned());
        assert_eq!(selector.to_string(), text);
        let found = [MAIN_THREAD, LOADER, NATIVE].map(|thread| selector.selects(thread));
        assert_eq!(found, selected, "{text}");
    }

    #[test]
    fn a_thread_is_selected_by_main_its_name_or_an_id() {
        check("main", [true, false, false]);
        check("MainThread", [true, false, false]);
        check("4242", [true, false, false]);
        check("loader-3", [false, true, false]);
        check("139901", [false, true, false]);
        check("4243", [false, true, false]);
        check("4244", [false, false, true]);
        check("0", [false; 3]);
        check("", [false; 3]);
        check("nobody", [false; 3]);
    }

    #[test]
    fn main_is_the_main_thread_and_no_other_of_that_name() {
        let other = ThreadNames {
            name: Some("main"),
            ..LOADER
        };
        assert!(!ThreadSelector::Main.selects(other));
    }

    #[test]
    fn requests_are_about_the_main_thread_unless_they_say_otherwise() {
        let loader = || Some(ThreadSelector::from("loader-3".to_owned()));
        let selected = |filter: &ThreadFilter| {
            [MAIN_THREAD, LOADER, NATIVE].map(|thread| filter.selects(thread))
        };
        assert_eq!(
            selected(&ThreadFilter::new(false, None)),
            [true, false, false]
        );
        assert_eq!(selected(&ThreadFilter::new(true, None)), [true; 3]);
        assert_eq!(
            selected(&ThreadFilter::new(false, loader())),
            [false, true, false]
        );
    }
}
