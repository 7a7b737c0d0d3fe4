//! What a command line may name, and how it prints.

use proptest::prelude::*;
use proptest::string::string_regex;

use super::*;
use crate::targets::target::UnlistedAgent;

fn choices(text: &str) -> Result<Vec<TargetSelector>, NotATarget> {
    text.parse().map(|TargetSelectors(choices)| choices)
}

fn check(text: &str, selector: TargetSelector) {
    assert_eq!(selector.to_string(), text);
    assert_eq!(choices(text), Ok(vec![selector]));
}

fn local(pid: u32) -> TargetSelector {
    TargetSelector::One(Target::Local(Pid(pid)))
}

fn node(text: &str) -> TargetSelector {
    TargetSelector::Node(text.parse().unwrap())
}

fn remote(text: &str, pid: u32) -> TargetSelector {
    TargetSelector::One(Target::Remote(Remote {
        node: Arc::new(Node::new(text.parse().unwrap(), Keys::default())),
        pid: Pid(pid),
    }))
}

#[test]
fn a_target_prints_as_it_is_parsed() {
    check("42", local(42));
    check("all", TargetSelector::All);
    check("h:80", node("h:80"));
    check("host:8080/4242", remote("host:8080", 4242));
    check("[::1]:81/7", remote("[::1]:81", 7));
    check("[unix]:80", node("[unix]:80"));
    check("ssh://me@h/7", remote("ssh://me@h", 7));
    check("ssh://h:22", node("ssh://h:22"));
    let one = |target| TargetSelector::One(target);
    check(
        "unix:/run/x.sock",
        one(Target::Socket("/run/x.sock".into())),
    );
    check("unix:/x:80", one(Target::Socket("/x:80".into())));
    check("train.py", one(Target::Name("train.py".into())));
    check("a/b.py", one(Target::Name("a/b.py".into())));
    check("a/42", one(Target::Name("a/42".into())));
    check("4x", one(Target::Name("4x".into())));
    check("hung.probe", one(Target::Capture("hung.probe".into())));
    // An agent that does not say who is on its machine is named as the agent was.
    let unlisted = Target::Unlisted(UnlistedAgent {
        endpoint: "h:80".parse().unwrap(),
        why: String::new(),
    });
    assert_eq!(choices(&unlisted.to_string()), Ok(vec![node("h:80")]));
}

#[test]
fn one_t_may_name_several() {
    assert_eq!(choices("42,43"), Ok(vec![local(42), local(43)]));
    assert_eq!(
        choices("h:80, 42,[::1]:81/7"),
        Ok(vec![node("h:80"), local(42), remote("[::1]:81", 7)])
    );
    assert_eq!(choices(""), Err(NotATarget::Empty));
    assert_eq!(choices("42,"), Err(NotATarget::Empty));
    assert_eq!(choices("unix:"), Err(NotATarget::NoPath));
}

/// Every form, and words that resemble one.
fn words() -> impl Strategy<Value = String> {
    let host = r"[a-z0-9][a-z0-9._%-]{0,8}|unix|all|\[[0-9a-f:]{1,9}\]|\[[a-z]{1,4}\]";
    let endpoint =
        format!("({host}):[0-9]{{1,5}}|ssh://([a-z]{{1,4}}@)?[a-z0-9.-]{{1,9}}(:[0-9]{{1,5}})?");
    let of_agent = format!("({endpoint})/[+]?[0-9]{{1,6}}");
    let matching = |pattern: &str| string_regex(pattern).unwrap();
    prop_oneof![
        "[+]?[0-9]{1,10}",
        matching(&endpoint),
        matching(&of_agent),
        "unix:[!-+.-~]{1,20}",
        "[!-+.-~]{0,20}(\\.probe)?",
        "[^,\\s]{1,12}",
    ]
}

proptest! {
    #[test]
    fn what_a_target_prints_is_parsed_as_that_target(word in words()) {
        if let Ok(selector) = word.parse::<TargetSelector>() {
            prop_assert_eq!(choices(&selector.to_string()), Ok(vec![selector]));
        }
    }
}

#[test]
fn one_target_is_one_only_when_it_cannot_be_several() {
    let set = |texts: &[&str], ranks: Option<&str>| {
        let ranks = ranks.map(|ranks| ranks.parse().unwrap());
        TargetSet::new(texts.iter().map(|text| text.parse().unwrap()), ranks)
    };
    assert_eq!(set(&["42"], None).one(), Some(Target::Local(Pid(42))));
    let there = set(&["h:80/42"], None).one().unwrap();
    assert_eq!(there.to_string(), "h:80/42");
    assert_eq!(set(&["h:80"], None).one(), None);
    assert_eq!(set(&["42", "43"], None).one(), None);
    assert_eq!(set(&["all"], None).one(), None);
    assert_eq!(set(&["42"], Some("0")).one(), None);
    assert!(set(&[], None).is_empty());
    assert!(!set(&[], Some("0")).is_empty());
}
