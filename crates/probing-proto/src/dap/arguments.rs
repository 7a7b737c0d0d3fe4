//! Arguments of requests.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialize {
    pub client_name: Option<String>,
    pub lines_start_at1: Option<bool>,
    pub columns_start_at1: Option<bool>,
}

/// What an `attach` configuration may say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attach {
    /// As `-t` takes it; a number is a pid.
    pub endpoint: Option<Value>,
    /// A number, or text with one.
    pub process_id: Option<Value>,
    /// What an adapter that listens on a port has printed.
    pub adapter_token: Option<String>,
    /// For an agent.
    pub token: Option<String>,
    pub token_file: Option<String>,
    pub fingerprint: Option<String>,
    pub ca: Option<String>,
    /// `0,2-5`, `all`; or a list of numbers.
    pub ranks: Option<Value>,
    /// Seconds, or as `--hold` takes it: `30m`, `10m,30m,4h`.
    pub stop_timeout: Option<Value>,
    pub on_disconnect: Option<OnDisconnect>,
    pub just_my_code: Option<bool>,
    pub path_mappings: Vec<PathMapping>,
    /// Classes at whose raising to stop, whatever the editor's list of exceptions says.
    pub exceptions: Vec<String>,
}

/// What becomes of stopped threads when the editor has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    Keep,
    #[default]
    Resume,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathMapping {
    pub local_root: String,
    pub remote_root: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disconnect {
    pub terminate_debuggee: bool,
    pub suspend_debuggee: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    pub name: Option<String>,
    pub path: Option<String>,
    pub source_reference: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceBreakpoint {
    pub line: i64,
    pub condition: Option<String>,
    pub hit_condition: Option<String>,
    pub log_message: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetBreakpoints {
    pub source: Source,
    pub breakpoints: Vec<SourceBreakpoint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FunctionBreakpoint {
    pub name: String,
    pub condition: Option<String>,
    pub hit_condition: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetFunctionBreakpoints {
    pub breakpoints: Vec<FunctionBreakpoint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExceptionFilter {
    pub filter_id: String,
    /// Names of classes, with commas between them.
    pub condition: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetExceptionBreakpoints {
    pub filters: Vec<String>,
    pub filter_options: Vec<ExceptionFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataBreakpointInfo {
    pub variables_reference: Option<i64>,
    pub frame_id: Option<i64>,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataBreakpoint {
    pub data_id: String,
    pub condition: Option<String>,
    pub hit_condition: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetDataBreakpoints {
    pub breakpoints: Vec<DataBreakpoint>,
}

/// `continue`, `next`, `stepIn`, `stepOut`, `pause`, `exceptionInfo`, `goto`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OfThread {
    pub thread_id: i64,
    pub target_id: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackTrace {
    pub thread_id: i64,
    pub start_frame: Option<i64>,
    pub levels: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scopes {
    pub frame_id: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Variables {
    pub variables_reference: i64,
    pub filter: Option<VariablesFilter>,
    pub start: Option<i64>,
    pub count: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariablesFilter {
    Indexed,
    Named,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetVariable {
    pub variables_reference: i64,
    pub name: String,
    pub value: String,
}

/// `evaluate` and `setExpression`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evaluate {
    pub expression: String,
    pub value: String,
    pub frame_id: Option<i64>,
    pub context: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Completions {
    pub frame_id: Option<i64>,
    pub text: String,
    pub column: i64,
    pub line: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceText {
    pub source: Option<Source>,
    pub source_reference: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GotoTargets {
    pub source: Source,
    pub line: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cancel {
    pub request_id: Option<i64>,
}
