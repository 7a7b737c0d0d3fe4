//! What an editor says of breakpoints in text: which data, which hits.

use probing_proto::dap::arguments::DataBreakpointInfo;
use probing_proto::dap::body;
use probing_proto::message::breakpoints::BreakpointLocation;

use super::code::{Root, is_name};
use super::values::Branch;
use super::{Answer, Handled, Refusal, Session, to_value};

impl Session {
    /// What can be watched: a local of a function, or what a path from a global name leads to.
    pub(super) fn data_breakpoint_info(&mut self, arguments: &DataBreakpointInfo) -> Handled {
        let branch = arguments
            .variables_reference
            .and_then(|id| self.values.find(id));
        let found = match branch {
            None if arguments.variables_reference.is_some_and(|id| id > 0) => {
                return Err(Refusal::new(
                    "the thread has resumed: its values are not known any more",
                ));
            }
            None => Some(format!("value:{}", arguments.name)),
            Some(branch) => data_id(branch, &arguments.name),
        };
        let description = match &found {
            Some(_) => format!("changes of {}", arguments.name),
            None => {
                "only local variables, and what a global name leads to, can be watched".to_owned()
            }
        };
        Ok(Answer::Now(to_value(&body::DataBreakpointInfo {
            data_id: found,
            description,
            access_types: vec!["write"],
            can_persist: false,
        })))
    }
}

/// What the engine can watch, by the name that the editor has for it.
fn data_id(branch: &Branch, name: &str) -> Option<String> {
    match branch.root {
        Root::Locals if branch.steps.is_empty() && is_name(name) => {
            let frame = branch.site.frame.as_ref()?;
            let function = &frame.function;
            // The names of a module are its globals.
            if function == "<module>" {
                return Some(format!("value:{name}"));
            }
            Some(format!("local:{function}:{name}"))
        }
        Root::Globals => {
            let child = branch.children.get(name)?;
            Some(format!("value:{}", child.code.as_ref()?))
        }
        Root::Locals | Root::Held(_) => None,
    }
}

/// Where data with this id is, as `dataBreakpointInfo` has told it.
pub(super) fn data_location(id: &str) -> Option<BreakpointLocation> {
    if let Some(path) = id.strip_prefix("value:") {
        let path = path.to_owned();
        return Some(BreakpointLocation::Value { path });
    }
    let (function, name) = id.strip_prefix("local:")?.rsplit_once(':')?;
    Some(BreakpointLocation::Local {
        function: function.to_owned(),
        name: name.to_owned(),
    })
}

/// The first hit that counts, and whether it is the only one.
pub(super) fn hits(condition: Option<&str>) -> Result<(u64, bool), String> {
    let Some(condition) = condition else {
        return Ok((1, false));
    };
    let digits_at = condition
        .find(|letter: char| letter.is_ascii_digit())
        .unwrap_or(condition.len());
    let (operator, number) = condition.split_at(digits_at);
    let number = number.trim().parse::<u64>().ok();
    match (operator.trim(), number) {
        ("" | ">=", Some(number)) => Ok((number.max(1), false)),
        (">", Some(number)) => Ok((number.saturating_add(1), false)),
        ("==" | "=", Some(number)) if number > 0 => Ok((number, true)),
        _ => Err(format!(
            "hit condition not understood: {condition} (hint: N or >= N, > N, == N)"
        )),
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_hit_condition_is_a_number_with_an_operator() {
        assert_eq!(hits(None), Ok((1, false)));
        assert_eq!(hits(Some("3")), Ok((3, false)));
        assert_eq!(hits(Some(">= 3")), Ok((3, false)));
        assert_eq!(hits(Some("> 3")), Ok((4, false)));
        assert_eq!(hits(Some("== 3")), Ok((3, true)));
        assert_eq!(hits(Some("0")), Ok((1, false)));
        for wrong in ["% 3", "x", "== 0", "3 times"] {
            assert!(hits(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_watched_is_named_by_its_id() {
        assert_eq!(
            data_location("local:Trainer.fit:lr"),
            Some(BreakpointLocation::Local {
                function: "Trainer.fit".into(),
                name: "lr".into()
            })
        );
        assert_eq!(
            data_location("value:config['a:b']"),
            Some(BreakpointLocation::Value {
                path: "config['a:b']".into()
            })
        );
        assert_eq!(data_location("lr"), None);
    }
}
