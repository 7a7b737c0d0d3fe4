//! The help of `probing` itself, which lists its commands by what they are for.
//!
//! clap knows one list of commands only. The list is made here when somebody asks for help; other runs do not pay for it.

use std::fmt::Write as _;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use crate::arguments::{Arguments, STYLES};

/// Every command, by what it is for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Look", &["list", "backtrace", "query", "flamegraph", "top"]),
    ("Run code", &["eval", "repl"]),
    (
        "Stop",
        &[
            "break",
            "watch",
            "breakpoints",
            "delete",
            "stops",
            "resume",
            "debug",
            "dap",
        ],
    ),
    (
        "Record",
        &[
            "trace",
            "untrace",
            "torch",
            "watch-nan",
            "collectives",
            "memory",
            "leak",
            "capture",
            "export",
            "clean",
        ],
    ),
    ("Reach", &["attach", "detach", "run", "agent"]),
    ("More", &["connect", "completions", "help"]),
];

/// Parses the command line. An error may be the help that it asks for.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let error = match Arguments::try_parse() {
        Ok(arguments) => return Ok(arguments),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(grouped().try_get_matches().err().unwrap_or(error))
        }
        _ => Err(error),
    }
}

/// The definition of the command line, with a list of commands in groups instead of clap's.
fn grouped() -> clap::Command {
    let mut command = Arguments::command();
    command.build();
    let groups = groups(&command);
    let usage = "probing [OPTIONS] [TARGET] <COMMAND>";
    command
        .mut_subcommands(|subcommand| subcommand.hide(true))
        .override_usage(usage)
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}"
        ))
}

fn groups(command: &clap::Command) -> String {
    let (heading, name_style) = (STYLES.get_header(), STYLES.get_literal());
    let mut text = String::new();
    for (group, names) in GROUPS {
        let mut add = |line: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            writeln!(text, "{line}").ok();
        };
        add(format_args!("{heading}{group}:{heading:#}"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(|it| it.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            add(format_args!(
                "  {name_style}{name:<12}{name_style:#} {about}"
            ));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = Arguments::command();
        command.build();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut commands: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let names = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
        let mut grouped: Vec<&str> = names.collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }

    /// Begins with a capital, ends without a period, and takes one line of 100 columns beside its flag.
    #[test]
    fn every_help_text_fits_a_line() {
        fn check(command: &mut clap::Command) {
            let name = command.get_name().to_owned();
            for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string);
                reads_well(&format!("{name} {}", argument.get_id()), help);
            }
            let help = command.render_help().to_string();
            let (flags, examples) = help.split_once("Example").unwrap_or((&help, ""));
            let wrapped = flags.lines().find(|line| line.starts_with("         "));
            assert_eq!(wrapped, None, "{name}: a help text takes two lines");
            let long = examples.lines().find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "{name}: longer than 100 columns");
            for subcommand in command.get_subcommands_mut() {
                let about = subcommand.get_about().map(ToString::to_string);
                reads_well(subcommand.get_name(), about);
                check(subcommand);
            }
        }
        fn reads_well(of: &str, help: Option<String>) {
            let help = help.unwrap_or_else(|| panic!("{of}: no help"));
            assert!(help.starts_with(char::is_uppercase), "{of}: {help}");
            assert!(!help.ends_with('.'), "{of}: {help}");
        }
        let mut command = Arguments::command().term_width(100);
        command.build();
        check(&mut command);
    }
}
