//! Values of a stopped thread: scopes, variables in pages, evaluated code, assignments, completions, source text.

use std::collections::HashMap;
use std::time::Duration;

use probing_proto::dap::arguments::{Evaluate, Scopes, SetVariable, Variables, VariablesFilter};
use probing_proto::dap::body::{self, Variable};
use probing_proto::message::breakpoints::{Controller, StopId};
use probing_proto::message::{Call, Eval, FrameSelector, Outcome};
use serde::Deserialize;
use serde_json::Value;

use super::code::{Root, ValuesCode, is_name};
use super::ids::StopKey;
use super::probes::Purpose;
use super::stops::Frame;
use super::{Answer, Handled, Link, Refusal, Reply, Session, to_value};

/// Reading values is a matter of milliseconds; an attribute of a tensor may wait for a device.
pub(super) const VALUES_TIMEOUT: Duration = Duration::from_secs(5);
/// Children in one answer to an editor that asks for no page.
const MAX_CHILDREN: i64 = 2000;
/// Whether `python/values.py` runs in a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Absent,
    Installing(Vec<(Site, String, EvalPurpose)>),
    Ready,
}

/// Where code is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) target: usize,
    /// Without one, in `__main__`.
    pub(super) frame: Option<FrameSite>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameSite {
    pub(super) stop: StopId,
    thread: u64,
    depth: u32,
    pub(super) function: String,
}

impl Site {
    pub(super) fn of_frame(frame: &Frame) -> Self {
        Self {
            target: frame.key.target,
            frame: Some(FrameSite {
                stop: frame.key.stop,
                thread: frame.thread,
                depth: frame.depth,
                function: frame.location.func.clone(),
            }),
        }
    }

    /// Whose resuming makes what is found here invalid.
    fn owner(&self) -> Option<StopKey> {
        let stop = self.frame.as_ref()?.stop;
        Some(StopKey {
            target: self.target,
            stop,
        })
    }
}

/// A value that the editor may expand: the way to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branch {
    pub(super) site: Site,
    pub(super) root: Root,
    pub(super) steps: Vec<Value>,
    /// Code that means it, where there is some.
    code: Option<String>,
    /// Those that were listed, by the names that the editor has for them.
    pub(super) children: HashMap<String, Child>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Child {
    step: Value,
    pub(super) code: Option<String>,
}

/// What code is evaluated for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvalPurpose {
    Children {
        reply: Reply,
        parent: i64,
    },
    /// A value, for `evaluate`, `setVariable` and `setExpression`.
    Tell {
        reply: Reply,
        site: Site,
        /// What the user typed at the prompt, if it may be statements.
        typed: Option<String>,
    },
    /// Statements that the user typed.
    Statements {
        reply: Reply,
    },
}

impl EvalPurpose {
    pub(super) fn reply(&self) -> &Reply {
        match self {
            Self::Children { reply, .. }
            | Self::Tell { reply, .. }
            | Self::Statements { reply } => reply,
        }
    }
}

/// As `python/values.py` tells it.
#[derive(Debug, Deserialize)]
struct Described {
    value: String,
    #[serde(rename = "type")]
    kind: String,
    named: i64,
    indexed: i64,
    #[serde(default)]
    held: u64,
    #[serde(default)]
    none: bool,
}

#[derive(Debug, Deserialize)]
struct DescribedChild {
    name: String,
    step: Value,
    code: Option<String>,
    #[serde(flatten)]
    described: Described,
}

impl Session {
    fn code(&self) -> ValuesCode<'_> {
        ValuesCode {
            nonce: &self.surroundings.nonce,
        }
    }

    /// Makes values reachable, before the editor asks for some.
    pub(super) fn prepare_values(&mut self, target: usize) {
        if self.targets[target].values != Readiness::Absent {
            return;
        }
        let eval = Eval {
            // It lives as long as the connection.
            keep: true,
            ..Eval::of(self.code().install())
        };
        self.targets[target].values = Readiness::Installing(Vec::new());
        let (call, limit) = (Call::Eval(eval), Some(VALUES_TIMEOUT));
        self.ask_within(target, Link::Support, call, Purpose::Install, limit);
    }

    pub(super) fn installed(&mut self, target: usize, outcome: Outcome) {
        let why = match outcome {
            Outcome::Finished { .. } => {
                let ready = std::mem::replace(&mut self.targets[target].values, Readiness::Ready);
                if let Readiness::Installing(waiting) = ready {
                    for (site, code, purpose) in waiting {
                        self.run(&site, code, purpose);
                    }
                }
                return;
            }
            Outcome::Raised(raised) => format!("{}: {}", raised.exception, raised.message),
            Outcome::SyntaxError { text } => text,
        };
        self.not_installed(target, &why);
    }

    pub(super) fn not_installed(&mut self, target: usize, why: &str) {
        let why = format!("values of this process cannot be shown: {why}");
        // The next request tries again: its interpreter may have been busy.
        let before = std::mem::replace(&mut self.targets[target].values, Readiness::Absent);
        if let Readiness::Installing(waiting) = before {
            for (_, _, purpose) in waiting {
                self.refuse_eval(&purpose, &Refusal::new(why.clone()));
            }
        }
    }

    /// Evaluates code that calls `python/values.py`, as soon as that is there.
    fn run_with_values(&mut self, site: &Site, code: String, purpose: EvalPurpose) -> Answer {
        self.prepare_values(site.target);
        match &mut self.targets[site.target].values {
            Readiness::Installing(waiting) => waiting.push((site.clone(), code, purpose)),
            Readiness::Absent | Readiness::Ready => self.run(site, code, purpose),
        }
        Answer::Later
    }

    fn run(&mut self, site: &Site, code: String, purpose: EvalPurpose) {
        let mut eval = Eval::of(code);
        let mut link = Link::Support;
        if let Some(frame) = &site.frame {
            eval.frame = Some(FrameSelector::Depth(i64::from(frame.depth)));
            let key = StopKey {
                target: site.target,
                stop: frame.stop,
            };
            match self.stopped(key).map(|stopped| stopped.stop.driver) {
                // On the stopped thread itself: what is assigned is the frame's.
                Some(Controller::You) => {
                    eval.stop = Some(frame.stop);
                    link = Link::Control;
                }
                Some(_) => eval.thread = Some(frame.thread.to_string()),
                None => {
                    let refusal = Refusal::new("the thread has resumed");
                    return self.refuse_eval(&purpose, &refusal);
                }
            }
        }
        // What the user typed may take its time: it is cancelled by hand.
        let is_typed = match &purpose {
            EvalPurpose::Statements { .. } => true,
            EvalPurpose::Tell { typed, .. } => typed.is_some(),
            EvalPurpose::Children { .. } => false,
        };
        let limit = (!is_typed).then_some(VALUES_TIMEOUT);
        let (call, purpose) = (Call::Eval(eval), Purpose::Eval(purpose));
        self.ask_within(site.target, link, call, purpose, limit);
    }

    pub(super) fn frame(&self, id: i64) -> Result<&Frame, Refusal> {
        let gone = || Refusal::new("no such frame: its thread has resumed");
        self.frames.find(id).ok_or_else(gone)
    }

    fn branch(&self, id: i64) -> Result<&Branch, Refusal> {
        let gone = || Refusal::new("no such value: its thread has resumed");
        self.values.find(id).ok_or_else(gone)
    }

    pub(super) fn scopes(&mut self, arguments: &Scopes) -> Handled {
        let site = Site::of_frame(self.frame(arguments.frame_id)?);
        let is_module = site
            .frame
            .as_ref()
            .is_some_and(|it| it.function == "<module>");
        let kinds: &[_] = if is_module {
            &[("Globals", "globals", Root::Globals)]
        } else {
            &[
                ("Locals", "locals", Root::Locals),
                ("Globals", "globals", Root::Globals),
            ]
        };
        let mut scopes = Vec::new();
        for (name, presentation_hint, root) in kinds {
            let branch = Branch {
                site: site.clone(),
                root: *root,
                steps: Vec::new(),
                code: None,
                children: HashMap::new(),
            };
            scopes.push(body::Scope {
                name,
                presentation_hint,
                variables_reference: self.values.give(site.owner(), branch),
                expensive: *root == Root::Globals && !is_module,
            });
        }
        Ok(Answer::Now(to_value(&body::Scopes { scopes })))
    }

    pub(super) fn variables(&mut self, reply: &Reply, arguments: &Variables) -> Handled {
        let parent = arguments.variables_reference;
        let branch = self.branch(parent)?.clone();
        let which = match arguments.filter {
            None => "all",
            Some(VariablesFilter::Indexed) => "indexed",
            Some(VariablesFilter::Named) => "named",
        };
        let start = arguments.start.unwrap_or(0).max(0);
        let count = match arguments.count {
            Some(count) if count > 0 => count.min(MAX_CHILDREN),
            _ => MAX_CHILDREN,
        };
        let page = (which, start, count);
        let code = self.code().children(branch.root, &branch.steps, page);
        let reply = reply.clone();
        Ok(self.run_with_values(&branch.site, code, EvalPurpose::Children { reply, parent }))
    }

    pub(super) fn evaluate(&mut self, reply: &Reply, arguments: Evaluate) -> Handled {
        let site = match arguments.frame_id {
            Some(frame) => Site::of_frame(self.frame(frame)?),
            None => self.somewhere()?,
        };
        let context = arguments.context.as_deref();
        let is_typed = context == Some("repl");
        let is_whole = is_typed || context == Some("clipboard");
        let code = self.code().tell(&arguments.expression, is_whole);
        let purpose = EvalPurpose::Tell {
            reply: reply.clone(),
            site: site.clone(),
            typed: is_typed.then_some(arguments.expression),
        };
        Ok(self.run_with_values(&site, code, purpose))
    }

    /// `__main__` of the first process that is there.
    pub(super) fn somewhere(&self) -> Result<Site, Refusal> {
        let target = self.targets.iter().position(|target| !target.is_gone);
        let target = target.ok_or_else(|| Refusal::new("the process has ended"))?;
        Ok(Site {
            target,
            frame: None,
        })
    }

    pub(super) fn set_variable(&mut self, reply: &Reply, arguments: &SetVariable) -> Handled {
        let branch = self.branch(arguments.variables_reference)?.clone();
        let name = &arguments.name;
        let code = if branch.root == Root::Locals && branch.steps.is_empty() && is_name(name) {
            self.code().assign_to(name, &arguments.value)
        } else {
            let child = branch.children.get(name);
            let child = child.ok_or_else(|| Refusal::new(format!("no such variable: {name}")))?;
            let (root, steps) = (branch.root, &branch.steps);
            self.code()
                .assign(root, steps, &child.step, &arguments.value)
        };
        let purpose = EvalPurpose::Tell {
            reply: reply.clone(),
            site: branch.site.clone(),
            typed: None,
        };
        Ok(self.run_with_values(&branch.site, code, purpose))
    }

    pub(super) fn set_expression(&mut self, reply: &Reply, arguments: &Evaluate) -> Handled {
        let site = match arguments.frame_id {
            Some(frame) => Site::of_frame(self.frame(frame)?),
            None => self.somewhere()?,
        };
        let code = self
            .code()
            .assign_to(&arguments.expression, &arguments.value);
        let purpose = EvalPurpose::Tell {
            reply: reply.clone(),
            site: site.clone(),
            typed: None,
        };
        Ok(self.run_with_values(&site, code, purpose))
    }

    pub(super) fn evaluated(&mut self, target: usize, purpose: EvalPurpose, outcome: Outcome) {
        let value = match outcome {
            Outcome::Finished { value } => value,
            Outcome::Raised(raised) => {
                let text = match raised.message.as_str() {
                    "" => raised.exception,
                    message => format!("{}: {message}", raised.exception),
                };
                return self.refuse_eval(&purpose, &Refusal::new(text));
            }
            Outcome::SyntaxError { text } => {
                if let EvalPurpose::Tell {
                    reply,
                    site,
                    typed: Some(typed),
                } = purpose
                {
                    // No expression: statements, perhaps.
                    return self.run(&site, typed, EvalPurpose::Statements { reply });
                }
                return self.refuse_eval(&purpose, &Refusal::new(last_line(&text)));
            }
        };
        let told = value.unwrap_or_default();
        match purpose {
            EvalPurpose::Statements { reply } => {
                let body = body::Evaluated {
                    result: told,
                    ..body::Evaluated::default()
                };
                self.answer(&reply, to_value(&body));
            }
            EvalPurpose::Children { reply, parent } => self.children_came(&reply, parent, &told),
            EvalPurpose::Tell { reply, site, typed } => {
                debug_assert_eq!(site.target, target, "the answer is that target's");
                self.value_came(&reply, &site, typed.is_some(), &told);
            }
        }
    }

    pub(super) fn refuse_eval(&mut self, purpose: &EvalPurpose, refusal: &Refusal) {
        let reply = purpose.reply().clone();
        self.refuse(&reply, refusal);
    }

    fn children_came(&mut self, reply: &Reply, parent: i64, told: &str) {
        let Ok(branch) = self.branch(parent).cloned() else {
            let refusal = Refusal::new("the thread has resumed");
            return self.refuse(reply, &refusal);
        };
        let Ok(children) = serde_json::from_str::<Vec<DescribedChild>>(told) else {
            let refusal = Refusal::new("the target's answer is not understood");
            return self.refuse(reply, &refusal);
        };
        let mut variables = Vec::new();
        for DescribedChild {
            name,
            step,
            code,
            described,
        } in children
        {
            let is_scope = branch.steps.is_empty() && !matches!(branch.root, Root::Held(_));
            let code = match (&branch.code, code) {
                (_, Some(code)) if is_scope => Some(code),
                (Some(before), Some(code)) => Some(format!("{before}{code}")),
                _ => None,
            };
            let mut steps = branch.steps.clone();
            steps.push(step.clone());
            let below = Branch {
                site: branch.site.clone(),
                root: branch.root,
                steps,
                code: code.clone(),
                children: HashMap::new(),
            };
            variables.push(Variable {
                name: name.clone(),
                evaluate_name: code.clone(),
                ..self.variable(described, below)
            });
            if let Some(parent) = self.values.find_mut(parent) {
                parent.children.insert(name, Child { step, code });
            }
        }
        self.answer(reply, to_value(&body::Variables { variables }));
    }

    /// As the editor shows it; it can be expanded if it has children.
    fn variable(&mut self, described: Described, branch: Branch) -> Variable {
        let (named, indexed) = (described.named, described.indexed);
        let variables_reference = if named + indexed > 0 {
            self.values.give(branch.site.owner(), branch)
        } else {
            0
        };
        Variable {
            name: String::new(),
            value: described.value,
            kind: Some(described.kind),
            variables_reference,
            named_variables: (variables_reference > 0).then_some(named),
            indexed_variables: (variables_reference > 0).then_some(indexed),
            evaluate_name: None,
            presentation_hint: None,
        }
    }

    fn value_came(&mut self, reply: &Reply, site: &Site, is_typed: bool, told: &str) {
        let Ok(described) = serde_json::from_str::<Described>(told) else {
            let refusal = Refusal::new("the target's answer is not understood");
            return self.refuse(reply, &refusal);
        };
        let is_none = described.none;
        let is_valid = site.owner().is_none_or(|key| self.stopped(key).is_some());
        let branch = Branch {
            site: site.clone(),
            root: Root::Held(described.held),
            steps: Vec::new(),
            code: None,
            children: HashMap::new(),
        };
        if !is_valid {
            self.let_go(site.target, &[described.held]);
            let refusal = Refusal::new("the thread has resumed");
            return self.refuse(reply, &refusal);
        }
        let variable = self.variable(described, branch);
        if reply.command != "evaluate" {
            return self.answer(reply, to_value(&variable));
        }
        let body = body::Evaluated {
            // As at a prompt.
            result: if is_typed && is_none {
                String::new()
            } else {
                variable.value
            },
            kind: variable.kind,
            variables_reference: variable.variables_reference,
            named_variables: variable.named_variables,
            indexed_variables: variable.indexed_variables,
        };
        self.answer(reply, to_value(&body));
    }

    /// A thread resumes, or stands elsewhere: what was known of its frames and values is over.
    pub(super) fn forget_values(&mut self, key: StopKey) {
        self.frames.forget(key);
        let held = self.values.forget(key).into_iter();
        let held: Vec<u64> = held
            .filter_map(|branch| match branch.root {
                Root::Held(number) if branch.steps.is_empty() => Some(number),
                _ => None,
            })
            .collect();
        self.let_go(key.target, &held);
    }

    fn let_go(&mut self, target: usize, held: &[u64]) {
        let is_there = |number: &&u64| **number > 0;
        let held: Vec<u64> = held.iter().filter(is_there).copied().collect();
        if held.is_empty() || self.targets[target].is_gone {
            return;
        }
        let eval = Eval::of(self.code().release(&held));
        self.ask(target, Link::Support, Call::Eval(eval), Purpose::Unheard);
    }
}

/// What Python says at the end.
fn last_line(text: &str) -> String {
    let line = text.trim_end().rsplit('\n').next();
    line.unwrap_or(text).trim().to_owned()
}
