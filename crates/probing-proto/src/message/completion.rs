//! Messages of a prompt about live objects: their names, attributes and types.
//!
//! The way to an object is spelled in steps that need no code of the program to be followed.

use serde::{Deserialize, Serialize};

/// One step on the way to an object. The first is a name of the namespace, or a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A name, then an attribute.
    Name(String),
    /// `[0]`
    Index(i64),
    /// `["text"]`
    Key(String),
    /// A module that is loaded, by its dotted name.
    Module(String),
}

/// What is looked for at the end of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionKind {
    /// Names of the namespace, builtins included.
    Names,
    /// Names of the namespace that the program or a prompt made.
    Own,
    Attributes,
    /// Keys of a mapping, as literals.
    Keys,
    /// Modules, by their dotted names.
    Modules,
}

/// Whose names they are: those that code in a frame finds; without one, those of `__main__`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Whose frame: `main`, a name, an id; without it, the main thread's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// 0 is the innermost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
}

/// Asks for the completions of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    #[serde(default)]
    pub steps: Vec<Step>,
    pub look: CompletionKind,
    pub prefix: String,
    #[serde(flatten)]
    pub scope: Scope,
}

/// Asks what an object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Describe {
    pub steps: Vec<Step>,
    #[serde(flatten)]
    pub scope: Scope,
}

/// One completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The whole name, or a key as a literal.
    pub text: String,
    /// `function`, `class`, `module`, `property`, or the name of its type.
    pub kind: String,
}

/// What is known of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its type, with the module: `torch.nn.modules.linear.Linear`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How it is called: `(x, *, bias=True)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    /// Where it, or its class, is defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineno: Option<u32>,
    /// Shape, dtype and device of a tensor or an array; the length of a container; the value of a number or a text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<(String, String)>,
}
