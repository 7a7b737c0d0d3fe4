//! First contact with an agent: nothing is trusted unseen, and the token never leaves.

use std::fs;
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, Screen, Target, root};

use crate::agent::Agent;
use crate::sandbox;

fn latest() -> Python {
    Python::all().into_iter().next_back().unwrap()
}

fn for_others(sandbox: &Sandbox) -> Agent {
    Agent::with(sandbox, &["--listen", "0"], |_| {})
}

/// A command of somebody who has the token, and has met nobody.
fn command(agent: &Agent, here: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = agent.command(here, arguments);
    command.env("PROBING_TOKEN", &agent.token);
    command
}

#[test]
fn an_agent_that_was_never_met_is_refused_without_a_terminal() {
    let (here, there) = (sandbox(), sandbox());
    let target = there.probed(&latest(), "idle.py");
    let agent = for_others(&there);
    let ask = |arguments: &[&str]| CommandResult::to_the_end(command(&agent, &here, arguments));
    let refused = ask(&["eval", "noticed = True"]);
    assert_eq!(refused.status, 3, "{refused:?}");
    let (name, seen) = (agent.name(), agent.fingerprint());
    assert_eq!(
        refused.stderr,
        format!(
            "error: certificate not trusted: first contact with the agent at {name}, which shows {seen}\n\
             hint: compare it with the agent's output, then add --fingerprint {seen}; or trust it unseen with --accept-new, or \
             agents whose certificates an authority signed with --ca FILE\n"
        )
    );
    // Nothing was asked, and nothing is remembered.
    assert_eq!(Agent::whole_audit(&there), Vec::<serde_json::Value>::new());
    let known = here.path().join("state/probing/known_agents");
    assert!(!known.exists());
    // Each of these is enough.
    assert_eq!(ask(&["--fingerprint", &seen, "eval", "6 * 7"]).ok(), "42\n");
    let mut by_variable = command(&agent, &here, &["eval", "6 * 7"]);
    by_variable.env("PROBING_FINGERPRINT", &seen);
    assert_eq!(CommandResult::to_the_end(by_variable).ok(), "42\n");
    assert!(!known.exists());
    assert_eq!(ask(&["eval", "1"]).status, 3);
    let first = ask(&["--accept-new", "eval", "6 * 7"]);
    assert_eq!((first.status, first.stdout.as_str()), (0, "42\n"));
    assert!(
        first.stderr.starts_with("note: first contact "),
        "{first:?}"
    );
    assert_eq!(ask(&["eval", "'noticed' in globals()"]).ok(), "False\n");
    // A fingerprint that is none is said to be.
    let mut wrong = command(&agent, &here, &["eval", "1"]);
    wrong.env("PROBING_FINGERPRINT", "sha256:12");
    assert_eq!(CommandResult::to_the_end(wrong).status, 2);
    drop(target);
}

#[test]
fn on_a_terminal_the_user_is_asked_and_sees_the_certificate() {
    let (here, there) = (sandbox(), sandbox());
    let target = there.probed(&latest(), "idle.py");
    let agent = for_others(&there);
    let eval = command(&agent, &here, &["eval", "6 * 7"]);
    let known = here.path().join("state/probing/known_agents");
    for no in ["", "n", "yess"] {
        let screen = Screen::start(&eval);
        screen.wait_for("Trust it from now on? [y/N]");
        screen.wait_for(&agent.fingerprint());
        screen.enter(no);
        screen.wait_for("ended: 3");
        assert!(!known.exists());
    }
    assert_eq!(Agent::whole_audit(&there), Vec::<serde_json::Value>::new());
    let screen = Screen::start(&eval);
    screen.wait_for("Trust it from now on? [y/N]");
    screen.enter("y");
    screen.wait_for("ended: 0");
    assert!(screen.text().contains("\n42\n"), "{}", screen.text());
    assert!(known.exists());
    // From now on it is known.
    let ran = CommandResult::to_the_end(eval);
    assert_eq!(ran.ok(), "42\n");
    drop(target);
}

/// Somebody who shows a certificate, writes down what is said, and hangs up.
fn impostor(sandbox: &Sandbox) -> (Target, String) {
    let other = crate::sandbox();
    drop(for_others(&other));
    let files = ["certificate.pem", "key.pem"].map(|name| {
        let to = sandbox.path().join(name);
        fs::copy(other.runtime_dir().join("agents").join(name), &to).unwrap();
        to
    });
    let listener = sandbox.target(&latest(), "tls_listener.py");
    let mut listener = listener
        .arg(&files[0])
        .arg(&files[1])
        .start_without_waiting();
    let port = listener.line();
    (listener, port)
}

/// Whether an agent lets in who says this, over TLS.
fn status(there: &Sandbox, agent: &Agent, authorization: &str) -> String {
    let mut client = Command::new(&latest().path);
    client
        .arg(root().join("tests/targets/tls_client.py"))
        .arg(agent.address.port().to_string())
        .arg(there.runtime_dir().join("agents/certificate.pem"))
        .arg(authorization);
    CommandResult::to_the_end(client).ok().trim().to_owned()
}

#[test]
fn the_token_never_travels_and_its_proof_is_worth_nothing_elsewhere() {
    let (here, there) = (sandbox(), sandbox());
    let agent = for_others(&there);
    let (mut rogue, port) = impostor(&here);
    let ask = |more: &[&str]| {
        let mut command = here.command();
        command
            .args(["-t", &format!("127.0.0.1:{port}"), "list"])
            .args(more);
        command
            .env("PROBING_TOKEN", &agent.token)
            .env("XDG_STATE_HOME", here.path().join("state"))
            .env_remove("PROBING_ACCEPT_NEW")
            .env_remove("PROBING_FINGERPRINT");
        CommandResult::to_the_end(command)
    };
    // Without trust there is a handshake, and nothing else.
    let refused = ask(&[]);
    assert_eq!(refused.status, 3, "{refused:?}");
    assert!(
        refused.stderr.contains("certificate not trusted"),
        "{refused:?}"
    );
    assert_eq!(rogue.line(), "heard b''");
    // With it, and that it hangs up is told.
    let fooled = ask(&["--accept-new"]);
    assert_eq!(fooled.status, 3, "{fooled:?}");
    assert!(
        fooled
            .stderr
            .starts_with("note: first contact with the agent at ")
            && fooled
                .stderr
                .contains("\nerror: the connection to the agent at "),
        "{fooled:?}"
    );
    assert_eq!(rogue.line(), "heard b''");
    let heard = rogue.line();
    assert!(
        heard.contains("GET /targets") && !heard.contains(&agent.token),
        "{heard}"
    );
    let proof = heard.split("Authorization: ").nth(1).unwrap();
    let proof = proof.split("\\r\\n").next().unwrap();
    assert!(proof.starts_with("Probing-Proof "), "{heard}");
    // What it has learnt lets nobody in at the real one; the token itself does, for other programs.
    assert_eq!(status(&there, &agent, proof), "401");
    assert_eq!(
        status(&there, &agent, &format!("Bearer {}", agent.token)),
        "200"
    );
    let lines = Agent::whole_audit(&there);
    assert_eq!(lines.len(), 1, "{lines:?}");
}
