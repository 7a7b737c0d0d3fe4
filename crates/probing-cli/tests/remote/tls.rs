//! Beyond loopback addresses: within TLS, with a certificate that commands remember.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, every_python};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

/// For other machines, on a port of its own.
fn for_others(sandbox: &Sandbox) -> Agent {
    Agent::with(sandbox, &["--listen", "0"], |_| {})
}

fn latest() -> Python {
    Python::all().into_iter().next_back().unwrap()
}

/// What `probing agent` says that does not start.
fn refused(sandbox: &Sandbox, arguments: &[&str], token: &str) -> String {
    let mut command = sandbox.command();
    command
        .arg("agent")
        .args(arguments)
        .env("PROBING_TOKEN", token);
    let ran = CommandResult::to_the_end(command);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{ran:?}");
    ran.stderr
}

#[test]
fn everything_works_from_another_machine_too() {
    every_python(|python| {
        let (here, there) = (sandbox(), sandbox());
        let target = there.probed(python, "idle.py");
        let agent = for_others(&there);
        let fingerprint = agent.greeting[1]
            .strip_prefix("certificate ")
            .unwrap()
            .to_owned();
        let first = agent.probing_elsewhere(&here, ["eval", "6 * 7"]);
        assert_eq!(
            (first.status, first.stdout.as_str()),
            (0, "42\n"),
            "{first:?}"
        );
        assert!(
            first
                .stderr
                .starts_with("note: first contact with the agent at ")
                && first.stderr.contains(&fingerprint),
            "{first:?}"
        );
        // From now on it is known.
        assert_eq!(
            agent.probing_elsewhere(&here, ["eval", "6 * 7"]).ok(),
            "42\n"
        );
        let stack = agent.probing_elsewhere(&here, ["backtrace", "--locals"]);
        assert!(stack.ok().contains("tests/targets/idle.py"), "{stack:?}");
        let listed = agent.probing_elsewhere(&here, ["list", "--json"]).json();
        assert_eq!(listed[0]["pid"], target.pid());
        let sql = "SELECT func FROM python.backtrace WHERE main AND depth = 0";
        let rows = agent.probing_elsewhere(&here, ["query", "--json", sql]);
        assert_eq!(rows.json(), json!([{"func": "<module>"}]), "{rows:?}");
        assert_eq!(
            agent
                .probing_elsewhere(&here, ["query", "SELECT FROM"])
                .status,
            2
        );
        let wrong = agent.probing_elsewhere(&here, ["query", "SELECT x FROM python.backtrac"]);
        assert_eq!(wrong.status, 1);
        assert!(
            wrong
                .stderr
                .ends_with("hint: did you mean python.backtrace? `SHOW TABLES` lists all\n"),
            "{wrong:?}"
        );
        let svg = here.path().join("out.folded");
        let flames = ["flamegraph", "--idle", "--for", "0.3", "-o"];
        let flames: Vec<String> = flames
            .iter()
            .map(ToString::to_string)
            .chain([svg.display().to_string()])
            .collect();
        let ran = agent.probing_elsewhere(&here, &flames);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(fs::read_to_string(svg).unwrap().contains("idle.py"));
        let mut repl = agent.command(&here, ["repl"]);
        repl.env("PROBING_TOKEN", &agent.token);
        let mut repl = here.target_command(repl).start_without_waiting();
        repl.say("21 * 2");
        assert_eq!(repl.line(), "42");
        repl.say("_ + 1");
        assert_eq!(repl.line(), "43");
        assert_eq!(repl.end().status, 0);
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}

#[test]
fn another_certificate_than_before_is_refused() {
    let (here, there) = (sandbox(), sandbox());
    let target = there.probed(&latest(), "idle.py");
    let agent = for_others(&there);
    let port = agent.address.port().to_string();
    let old = agent.greeting[1]
        .strip_prefix("certificate ")
        .unwrap()
        .to_owned();
    assert_eq!(agent.probing_elsewhere(&here, ["eval", "1"]).status, 0);
    // Somebody in between has another, or the agent was made anew.
    drop(agent);
    fs::remove_file(there.runtime_dir().join("agents/certificate.pem")).unwrap();
    let agent = Agent::with(&there, &["--listen", &port], |_| {});
    let new = agent.greeting[1]
        .strip_prefix("certificate ")
        .unwrap()
        .to_owned();
    assert_ne!(old, new);
    let ran = agent.probing_elsewhere(&here, ["eval", "noticed = True"]);
    assert_eq!(ran.status, 3);
    let name = agent.name();
    let file = here.path().join("state/probing/known_agents");
    assert_eq!(
        ran.stderr,
        format!(
            "error: the agent at {name} shows another certificate than expected: {new}\nhint: expected {old}: \
             someone may be in between. If the agent has a new certificate, remove its line from {}, or name it with \
             --fingerprint\n",
            file.display()
        )
    );
    // Whoever knows better says so.
    let named = agent.probing_elsewhere(
        &here,
        ["--fingerprint", &new, "eval", "'noticed' in globals()"],
    );
    assert_eq!(named.ok(), "False\n");
    let wrong = agent.probing_elsewhere(&here, ["--fingerprint", &old, "eval", "noticed = True"]);
    assert_eq!(wrong.status, 3);
    assert!(
        wrong.stderr.contains("shows another certificate"),
        "{wrong:?}"
    );
    assert!(
        !Agent::audit(&there)
            .iter()
            .any(|line| line["code"] == "noticed = True")
    );
    drop(target);
}

#[test]
fn plain_text_to_a_tls_port_is_told_so() {
    let sandbox = sandbox();
    let agent = for_others(&sandbox);
    let refused = agent.get("/targets").refusal();
    assert_eq!(refused, (400, "this port accepts TLS only".to_owned()));
    let garbage = agent.send(b"\x80\x01\x02\x03 what is this").refusal();
    assert_eq!(garbage.0, 400);
}

#[test]
fn a_plain_port_that_is_not_our_own_gets_no_token() {
    let (here, there) = (sandbox(), sandbox());
    let agent = Agent::start(&there);
    let ran = agent.probing_elsewhere(&here, ["list"]);
    assert_eq!(ran.status, 3);
    assert!(ran.stderr.contains("does not speak TLS\nhint: "), "{ran:?}");
    let mut command = agent.command(&here, ["list"]);
    command
        .env("PROBING_TOKEN", &agent.token)
        .env("PROBING_TLS", "off");
    assert_eq!(CommandResult::to_the_end(command).status, 0);
    // Without a token nothing is said at all.
    let none = agent.probing(&here, ["list"]);
    assert_eq!(none.status, 3);
    assert!(
        none.stderr.starts_with(&format!(
            "error: no token for the agent at {}\nhint: ",
            agent.name()
        )),
        "{none:?}"
    );
}

#[test]
fn a_certificate_of_ones_own_is_used() {
    let (here, there, other) = (sandbox(), sandbox(), sandbox());
    drop(for_others(&other));
    let files = other.runtime_dir().join("agents");
    let tls = format!(
        "{},{}",
        files.join("certificate.pem").display(),
        files.join("key.pem").display()
    );
    let target = there.probed(&latest(), "idle.py");
    let agent = Agent::with(&there, &["--listen", "0", "--tls", &tls], |_| {});
    assert_eq!(
        agent.probing_elsewhere(&here, ["eval", "6 * 7"]).stdout,
        "42\n"
    );
    assert!(!there.runtime_dir().join("agents/certificate.pem").exists());
    drop(target);
}

/// A certificate for these names with its key, signed by an authority of this name, which has its own beside it.
fn signed(sandbox: &Sandbox, authority: &str, names: &[&str]) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let secret = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&secret, &issuer).unwrap();
    let write = |name: &str, text: &str| {
        let path = sandbox.path().join(format!("{authority}-{name}.pem"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let shown = write("certificate", &certificate.pem());
    let key = write("key", &secret.serialize_pem());
    (write("ca", &own.pem()), format!("{shown},{key}"))
}

#[test]
fn an_authority_may_vouch_for_agents() {
    let (here, there) = (sandbox(), sandbox());
    let target = there.probed(&latest(), "idle.py");
    let (ca, tls) = signed(&there, "ours", &["127.0.0.1"]);
    let (other_ca, _) = signed(&there, "theirs", &["127.0.0.1"]);
    let (named_ca, elsewhere) = signed(&there, "named", &["node7.example"]);
    let agent = Agent::with(&there, &["--listen", "0", "--tls", &tls], |_| {});
    let trusted = agent.probing_elsewhere(&here, ["--ca", &ca, "eval", "6 * 7"]);
    assert_eq!(trusted.ok(), "42\n");
    // Nothing had to be remembered.
    assert!(!here.path().join("state/probing/known_agents").exists());
    let refused = |agent: &Agent, ca: &str| {
        let ran = agent.probing_elsewhere(&here, ["--ca", ca, "eval", "noticed = True"]);
        assert_eq!(ran.status, 3, "{ran:?}");
        ran.stderr
    };
    let told = refused(&agent, &other_ca);
    let words = format!(
        "error: certificate not trusted: the agent at {}: ",
        agent.name()
    );
    assert!(
        told.starts_with(&words) && told.contains("\nhint: none of those in "),
        "{told}"
    );
    let told = refused(&agent, "/dev/null");
    assert!(
        told.starts_with("error: cannot use the certificates in /dev/null: there is none"),
        "{told}"
    );
    // Signed, but for somebody else.
    let misnamed = Agent::with(&there, &["--listen", "0", "--tls", &elsewhere], |_| {});
    let told = refused(&misnamed, &named_ca);
    assert!(
        told.contains("certificate not trusted: the agent at "),
        "{told}"
    );
    let mut command = agent.command(&here, ["eval", "'noticed' in globals()"]);
    command
        .env("PROBING_TOKEN", &agent.token)
        .env("PROBING_CA", &ca);
    assert_eq!(CommandResult::to_the_end(command).ok(), "False\n");
    drop(target);
}

#[test]
fn addresses_outside_the_ranges_are_turned_away() {
    let (here, there) = (sandbox(), sandbox());
    let target = there.probed(&latest(), "idle.py");
    for (listen, here_token) in [("0", true), ("127.0.0.1:0", false)] {
        let allow = [
            "--listen",
            listen,
            "--allow",
            "10.9.0.0/16",
            "--allow",
            "fd00::/8",
        ];
        let agent = Agent::with(&there, &allow, |_| {});
        if here_token {
            let ran = agent.probing_elsewhere(&here, ["eval", "noticed = True"]);
            assert_eq!(ran.status, 3);
            let expected = format!(
                "error: the agent at {} refuses this address\nhint: ",
                agent.name()
            );
            assert!(ran.stderr.starts_with(&expected), "{ran:?}");
        } else {
            let refused = agent.get("/health").refusal();
            assert_eq!(
                refused,
                (
                    403,
                    "this address is not in the ranges: 127.0.0.1".to_owned()
                )
            );
        }
        assert_eq!(Agent::audit(&there), Vec::<serde_json::Value>::new());
    }
    let by_variable = Agent::with(
        &there,
        &["--listen", "127.0.0.1:0"],
        |command: &mut Command| {
            command.env("PROBING_ALLOW", "10.9.0.0/16, 127.0.0.0/8");
        },
    );
    assert_eq!(by_variable.get("/targets").status, 200);
    drop(target);
}

#[test]
fn unsafe_settings_do_not_start() {
    let sandbox = sandbox();
    let token = "a token that nobody guesses";
    let check = |arguments: &[&str], token: &str, words: &str| {
        let told = refused(&sandbox, arguments, token);
        assert!(
            told.starts_with(&format!("error: {words}")) && told.contains("\nhint: "),
            "{told}"
        );
    };
    check(
        &["--listen", "0", "--tls", "off"],
        token,
        "without TLS the agent listens on loopback addresses only",
    );
    check(
        &["--listen", "0"],
        "short",
        "a token has at least 16 characters, and the one of PROBING_TOKEN has 5",
    );
    check(
        &["--listen", "127.0.0.1:0"],
        "short",
        "a token has at least 16 characters, and the one of PROBING_TOKEN has 5",
    );
    let short = sandbox.path().join("short");
    fs::write(&short, "control abc").unwrap();
    fs::set_permissions(&short, fs::Permissions::from_mode(0o600)).unwrap();
    let short = short.display().to_string();
    check(
        &["--listen", "127.0.0.1:0", "--token-file", &short],
        token,
        "a token has at least 16 characters, and the one in ",
    );
    let open = sandbox.path().join("tokens");
    fs::write(&open, "control abc").unwrap();
    let open = open.display().to_string();
    check(
        &["--listen", "127.0.0.1:0", "--token-file", &open],
        token,
        "other users can read the secret in ",
    );
    let nothing = format!("{open},{open}");
    check(
        &["--listen", "0", "--tls", &nothing],
        token,
        "cannot use the certificate in ",
    );
    let first = Agent::start(&sandbox);
    let same = first.address.to_string();
    check(
        &["--listen", &same],
        token,
        "an agent of this user is on port ",
    );
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = occupied.local_addr().unwrap().to_string();
    check(&["--listen", &occupied], token, "cannot listen on ");
}
