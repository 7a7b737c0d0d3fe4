//! Actors of Ray: each is a process that Ray starts, renames and feeds with classes that no file of its own has.

use std::path::Path;
use std::process::Command;

use crate::program::{Program, python, sandbox, source};
use crate::walk::{Known, Walk};

#[test]
#[ignore = "make real"]
fn actors_of_ray_are_debugged_and_count_the_same() {
    let ray = |folder: &Path| {
        let mut command = Command::new(python());
        command
            .arg(source("ray_actors.py"))
            .arg(folder.join("ray"))
            // What Ray keeps for itself.
            .env("HOME", folder)
            .env("RAY_AUTH_MODE", "disabled")
            .env("RAY_USAGE_STATS_ENABLED", "0");
        command
    };
    let alone = Program::alone(ray);
    let sandbox = sandbox();
    let command = ray(sandbox.path());
    let mut program = Program::start(sandbox, command, 2);
    let known = Known {
        ranks: false,
        around: Some("in Worker.main_loop"),
        function: "Counter.work",
        local: ("upto", "1000"),
        trains: false,
        keeps_rows: true,
    };
    let walked = Walk::through(&program, &known);
    walked.ends(&program.end(), &alone);
}
