//! Code that is evaluated in a target for the editor: calls of `python/values.py`.

use serde_json::Value;

/// What runs in the target.
const VALUES: &str = include_str!("../../python/values.py");

/// Where a value is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Locals,
    Globals,
    /// It is held under this number.
    Held(u64),
}

impl Root {
    fn literal(self) -> String {
        match self {
            Self::Locals => "'l'".to_owned(),
            Self::Globals => "'g'".to_owned(),
            Self::Held(number) => number.to_string(),
        }
    }
}

/// The code of one session, which reaches its values by a name of its own.
pub(super) struct ValuesCode<'a> {
    pub(super) nonce: &'a str,
}

impl ValuesCode<'_> {
    fn name(&self) -> String {
        format!("_probing_dap_{}", self.nonce)
    }

    fn values(&self) -> String {
        format!("__import__('sys').{}", self.name())
    }

    /// Its value is what keeps the values reachable.
    pub(super) fn install(&self) -> String {
        let (source, name) = (literal(VALUES), self.name());
        format!(
            "(lambda names: (exec({source}, names), names['install']('{name}'))[1])({{'__name__': '_probing_dap'}})"
        )
    }

    pub(super) fn children(
        &self,
        root: Root,
        steps: &[Value],
        (which, start, count): (&str, i64, i64),
    ) -> String {
        let (values, root, steps) = (self.values(), root.literal(), python(steps));
        format!(
            "{values}.children(locals(), globals(), {root}, {steps}, '{which}', {start}, {count})"
        )
    }

    /// `expression` is what the user wrote; the line break ends a comment in it.
    pub(super) fn tell(&self, expression: &str, is_whole: bool) -> String {
        let whole = if is_whole { "True" } else { "False" };
        format!("{}.tell(({expression}\n), {whole})", self.values())
    }

    pub(super) fn assign(&self, root: Root, steps: &[Value], step: &Value, value: &str) -> String {
        let (values, root, steps) = (self.values(), root.literal(), python(steps));
        let step = python_value(step);
        format!("{values}.assign(locals(), globals(), {root}, {steps}, {step}, ({value}\n))")
    }

    /// Assigns to what may stand left of `=`, and describes it.
    pub(super) fn assign_to(&self, left: &str, value: &str) -> String {
        format!("{left} = ({value}\n)\n{}", self.tell(left, false))
    }

    pub(super) fn release(&self, numbers: &[u64]) -> String {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        format!("{}.release({})", self.values(), numbers.join(", "))
    }
}

/// Steps as Python: lists, texts and whole numbers, which JSON and Python write alike.
fn python(steps: &[Value]) -> String {
    let steps: Vec<String> = steps.iter().map(python_value).collect();
    format!("[{}]", steps.join(", "))
}

fn python_value(value: &Value) -> String {
    match value {
        Value::String(text) => literal(text),
        Value::Array(items) => python(items),
        Value::Number(number) => number.to_string(),
        // No step has any.
        Value::Null | Value::Bool(_) | Value::Object(_) => "None".to_owned(),
    }
}

/// A text as a literal of Python, in letters that every encoding has.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for letter in text.chars() {
        match letter {
            '\'' | '\\' => literal.extend(['\\', letter]),
            ' '..='~' => literal.push(letter),
            '\n' => literal.push_str("\\n"),
            letter => literal.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    literal.push('\'');
    literal
}

/// Whether text is one name, which may be assigned to.
pub(super) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|letter| letter.is_alphabetic() || letter == '_')
        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_a_target_is_no_code() {
        assert_eq!(literal("a'b\\c\n\u{1F600}"), "'a\\'b\\\\c\\n\\U0001f600'");
        let steps = [json!(["a", "x']); import os"]), json!(["n", 3])];
        assert_eq!(python(&steps), "[['a', 'x\\']); import os'], ['n', 3]]");
    }

    #[test]
    fn a_comment_ends_before_the_bracket() {
        let code = ValuesCode { nonce: "1" };
        assert_eq!(
            code.tell("x # why", false),
            "__import__('sys')._probing_dap_1.tell((x # why\n), False)"
        );
        assert!(is_name("_x1") && is_name("größe"));
        assert!(!is_name("x.y") && !is_name("1x") && !is_name(""));
    }
}
