//! What was typed at a stop: a command that people know from pdb, or Python.
//!
//! A command without arguments that something follows is Python: `n = 5` assigns. `!n` is Python in any case.

use std::fmt::Write as _;

/// One input, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// Again what was done last, if that can be repeated.
    Again,
    Next,
    Step,
    Return,
    Until(Option<u32>),
    Jump(u32),
    Continue,
    Up(u32),
    Down(u32),
    Where,
    List(Lines),
    LongList,
    Break {
        at: Option<String>,
        condition: Option<String>,
        once: bool,
    },
    Clear(Vec<u32>),
    Print(String),
    Pretty(String),
    WhatIs(String),
    Arguments,
    Display(Option<String>),
    Undisplay(Option<String>),
    Interact,
    Stops,
    /// Goes to another stop.
    GoTo(u32),
    Take,
    Help(Option<String>),
    Quit,
    Code(String),
    /// What is wrong with it.
    Wrong(String),
}

/// Which lines are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// On from the last ones, or around the current line.
    More,
    Here,
    Around(u32),
    Between(u32, u32),
}

/// A command: its names, its arguments, what it does. The order is that of `help`.
struct CommandSpec {
    names: &'static [&'static str],
    arguments: &'static str,
    does: &'static str,
}

const fn command(
    names: &'static [&'static str],
    arguments: &'static str,
    does: &'static str,
) -> CommandSpec {
    CommandSpec {
        names,
        arguments,
        does,
    }
}

const COMMANDS: [CommandSpec; 27] = [
    command(&["n", "next"], "", "run to the next line of this function"),
    command(&["s", "step"], "", "run to the next line, also into calls"),
    command(
        &["r", "return"],
        "",
        "run until the selected frame returns, show its value",
    ),
    command(
        &["unt", "until"],
        "[LINE]",
        "run to a later line of this function",
    ),
    command(
        &["j", "jump"],
        "LINE",
        "continue at this line, without running those between",
    ),
    command(&["c", "cont", "continue"], "", "resume until the next stop"),
    command(&["u", "up"], "[N]", "select the calling frame"),
    command(&["d", "down"], "[N]", "select the called frame"),
    command(
        &["w", "where", "bt"],
        "",
        "show the stack, with the selected frame marked",
    ),
    command(
        &["l", "list"],
        "[FIRST[, LAST]|.]",
        "show source around the line, then more",
    ),
    command(&["ll", "longlist"], "", "show the source of the function"),
    command(&["p"], "EXPR", "show the value of an expression"),
    command(&["pp"], "EXPR", "pretty-print the value of an expression"),
    command(&["whatis"], "EXPR", "show the type of an expression"),
    command(&["a", "args"], "", "show the arguments of this function"),
    command(
        &["display"],
        "[EXPR]",
        "show EXPR at every stop; alone, list these",
    ),
    command(
        &["undisplay"],
        "[EXPR]",
        "stop showing EXPR; alone, show none",
    ),
    command(
        &["b", "break"],
        "[[FILE:]LINE|FUNCTION[, COND]]",
        "set a breakpoint; alone, list breakpoints",
    ),
    command(
        &["tbreak"],
        "[FILE:]LINE|FUNCTION[, COND]",
        "set a breakpoint for one hit",
    ),
    command(
        &["cl", "clear"],
        "[N …]",
        "delete these; alone, all that were set here",
    ),
    command(
        &["interact"],
        "",
        "open a prompt in this frame; Ctrl-D returns",
    ),
    command(&["stops"], "", "list stopped threads"),
    command(&["stop"], "N", "switch to stop N"),
    command(
        &["take"],
        "",
        "take control of this stop from another client",
    ),
    command(
        &["q", "quit", "exit"],
        "",
        "resume, delete breakpoints that were set here, exit",
    ),
    command(&["h", "help", "?"], "[COMMAND]", "show this text"),
    command(
        &["!"],
        "CODE",
        "run Python in the frame; so does any other line",
    ),
];

impl Order {
    pub(super) fn of(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Again;
        }
        if let Some(code) = text.strip_prefix('!') {
            return Self::Code(code.trim_start().to_owned());
        }
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '?';
        let end = text.find(|letter| !is_letter(letter)).unwrap_or(text.len());
        let (name, behind) = text.split_at(end);
        let rest = behind.trim();
        // `s[0]`, `c.x`, `n = 5`, `b += 1` speak of the program's names.
        let speaks_of_name = !behind.is_empty()
            && (!behind.starts_with(char::is_whitespace) || begins_operator(rest));
        if speaks_of_name && !matches!(name, "p" | "pp") {
            return Self::Code(text.to_owned());
        }
        Self::known(name, rest).unwrap_or_else(|| Self::Code(text.to_owned()))
    }

    fn known(name: &str, rest: &str) -> Option<Self> {
        let given = || Some(rest.to_owned()).filter(|rest| !rest.is_empty());
        let alone = |order: Self| rest.is_empty().then_some(order);
        Some(match name {
            "n" | "next" => return alone(Self::Next),
            "s" | "step" => return alone(Self::Step),
            "r" | "return" => return alone(Self::Return),
            "c" | "cont" | "continue" => return alone(Self::Continue),
            "w" | "where" | "bt" => return alone(Self::Where),
            "ll" | "longlist" => return alone(Self::LongList),
            "a" | "args" => return alone(Self::Arguments),
            "interact" => return alone(Self::Interact),
            "stops" => return alone(Self::Stops),
            "take" => return alone(Self::Take),
            "q" | "quit" | "exit" => return alone(Self::Quit),
            "u" | "up" => counted(name, rest, Self::Up),
            "d" | "down" => counted(name, rest, Self::Down),
            "unt" | "until" if rest.is_empty() => Self::Until(None),
            "unt" | "until" => numbered(name, rest, |line| Self::Until(Some(line))),
            "j" | "jump" => numbered(name, rest, Self::Jump),
            "stop" => numbered(name, rest, Self::GoTo),
            "l" | "list" => lines(rest),
            "b" | "break" => breakpoint(rest, false),
            "tbreak" if rest.is_empty() => {
                Self::Wrong("tbreak needs a place: tbreak 120".to_owned())
            }
            "tbreak" => breakpoint(rest, true),
            "cl" | "clear" => match rest.split_whitespace().map(str::parse).collect() {
                Ok(numbers) => Self::Clear(numbers),
                Err(_) => Self::Wrong(format!("{name} takes numbers; b shows them: {rest}")),
            },
            "p" | "pp" | "whatis" if rest.is_empty() => {
                Self::Wrong(format!("{name} needs an expression"))
            }
            "p" => Self::Print(rest.to_owned()),
            "pp" => Self::Pretty(rest.to_owned()),
            "whatis" => Self::WhatIs(rest.to_owned()),
            "display" => Self::Display(given()),
            "undisplay" => Self::Undisplay(given()),
            "h" | "help" | "?" => Self::Help(given()),
            _ => return None,
        })
    }

    /// Whether it is done again by an empty line.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::Next
                | Self::Step
                | Self::Return
                | Self::Until(_)
                | Self::Continue
                | Self::Up(_)
                | Self::Down(_)
                | Self::List(_)
        )
    }
}

/// What an assignment, or an expression that goes on, begins with.
fn begins_operator(rest: &str) -> bool {
    let assigns = rest.starts_with('=')
        || rest.split_once('=').is_some_and(|(operator, _)| {
            !operator.is_empty()
                && operator
                    .chars()
                    .all(|letter| "+-*/%&|^@<>!:".contains(letter))
        });
    let goes_on = rest.starts_with(['+', '*', '/', '%', '<', '>', '&', '|', '^', ',', '[', ')'])
        || ["in ", "is ", "and ", "or ", "if ", "not in "]
            .iter()
            .any(|word| rest.starts_with(word));
    assigns || goes_on
}

fn counted(name: &str, rest: &str, order: fn(u32) -> Order) -> Order {
    if rest.is_empty() {
        return order(1);
    }
    numbered(name, rest, order)
}

fn numbered(name: &str, rest: &str, order: impl Fn(u32) -> Order) -> Order {
    match rest.parse() {
        Ok(number) => order(number),
        Err(_) => Order::Wrong(format!("{name} needs a number: {rest}")),
    }
}

fn lines(rest: &str) -> Order {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let lines = match rest {
        "" => Some(Lines::More),
        "." => Some(Lines::Here),
        rest => match rest.split_once(',') {
            None => number(rest).map(Lines::Around),
            // As in pdb: a second number that is smaller is a count.
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) if last < first => {
                    Some(Lines::Between(first, first.saturating_add(last)))
                }
                (Some(first), Some(last)) => Some(Lines::Between(first, last)),
                _ => None,
            },
        },
    };
    match lines {
        Some(lines) => Order::List(lines),
        None => Order::Wrong(format!(
            "l takes line numbers: l 10, l 10, 20, l . : {rest}"
        )),
    }
}

fn breakpoint(rest: &str, once: bool) -> Order {
    let (at, condition) = match rest.split_once(',') {
        Some((at, condition)) => (at.trim(), Some(condition.trim().to_owned())),
        None => (rest, None),
    };
    Order::Break {
        at: Some(at.to_owned()).filter(|at| !at.is_empty()),
        condition: condition.filter(|condition| !condition.is_empty()),
        once,
    }
}

/// Names of commands that begin so, and what they do.
pub(super) fn names(prefix: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = COMMANDS.iter().filter_map(|word| {
        let longest = word.names.iter().max_by_key(|name| name.len()).copied();
        longest.map(|name| (name, word.does))
    });
    let is_word = |name: &str| name.starts_with(char::is_alphabetic);
    all.filter(move |(name, _)| is_word(name) && name.starts_with(prefix))
}

/// What `help` prints; of one command, if it is named.
pub(super) fn help(about: Option<&str>) -> Result<String, String> {
    let mut text = String::new();
    let wanted = |word: &&CommandSpec| about.is_none_or(|about| word.names.contains(&about));
    for word in COMMANDS.iter().filter(wanted) {
        let names = word.names.join(", ");
        // Writing to a String does not fail.
        writeln!(
            text,
            "  {:<44} {}",
            format!("{names} {}", word.arguments),
            word.does
        )
        .ok();
    }
    match about {
        Some(about) if text.is_empty() => Err(format!("no such command: {about}; h lists them")),
        Some(_) => Ok(text),
        None => Ok(format!(
            "{text}  An empty line repeats the last step. Tab completes, Ctrl-C interrupts Python, Ctrl-D is q.\n"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, order: Order) {
        assert_eq!(Order::of(text), order, "{text:?}");
    }

    fn code(text: &str) -> Order {
        Order::Code(text.to_owned())
    }

    #[test]
    fn every_name_of_the_help_is_understood() {
        for word in &COMMANDS {
            for name in word.names {
                let text = match word.arguments {
                    "EXPR" => format!("{name} x"),
                    "LINE" | "N" => format!("{name} 1"),
                    "CODE" => continue,
                    _ if *name == "tbreak" => "tbreak f".to_owned(),
                    _ => (*name).to_owned(),
                };
                let order = Order::of(&text);
                assert!(
                    !matches!(order, Order::Code(_) | Order::Wrong(_)),
                    "{text}: {order:?}"
                );
            }
        }
    }

    #[test]
    fn pdb_users_find_their_commands() {
        check("", Order::Again);
        check("n", Order::Next);
        check(" s ", Order::Step);
        check("u 2", Order::Up(2));
        check("unt 12", Order::Until(Some(12)));
        check("l 3, 7", Order::List(Lines::Between(3, 7)));
        check("l 10, 5", Order::List(Lines::Between(10, 15)));
        check("p x.y, z", Order::Print("x.y, z".into()));
        check("p (1, 2)", Order::Print("(1, 2)".into()));
        check("p(x)", Order::Print("(x)".into()));
        check("p -x", Order::Print("-x".into()));
        check("cl 1 2", Order::Clear(vec![1, 2]));
        check(
            "b",
            Order::Break {
                at: None,
                condition: None,
                once: false,
            },
        );
        check(
            "tbreak train.py:12, x in (1, 2)",
            Order::Break {
                at: Some("train.py:12".into()),
                condition: Some("x in (1, 2)".into()),
                once: true,
            },
        );
    }

    #[test]
    fn names_of_the_program_win_where_something_is_done_with_them() {
        for text in [
            "n = 5",
            "s[0]",
            "c.x",
            "b += 1",
            "l == [1]",
            "a, b = 1, 2",
            "n in x",
            "x",
            "next(it)",
            "list(x)",
            "r *= 2",
            "d['k']",
            "step + 1",
            "w is None",
            "u, v",
        ] {
            check(text, code(text));
        }
        check("!n", code("n"));
        check("! c", code("c"));
        check("import os", code("import os"));
        check("return 5", code("return 5"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("j x", "a number"),
            ("j", "a number"),
            ("p", "an expression"),
            ("l a", "line numbers"),
            ("cl x", "numbers"),
            ("tbreak", "a place"),
        ] {
            match Order::of(text) {
                Order::Wrong(why) => assert!(why.contains(said), "{why}"),
                order => panic!("{text}: {order:?}"),
            }
        }
        assert!(help(Some("nope")).unwrap_err().contains("nope"));
        assert!(help(Some("n")).unwrap().contains("next line"));
        let names: Vec<_> = names("un").map(|(name, _)| name).collect();
        assert_eq!(names, ["until", "undisplay"]);
    }
}
