//! What an `attach` configuration means: checked once, at the edge.

use std::path::PathBuf;

use probing_proto::dap::arguments::{Attach, OnDisconnect, PathMapping};
use probing_proto::message::breakpoints::{DisconnectPolicy, StopPolicy};
use serde_json::Value;

/// How long a thread stays stopped that stops as the editor vanishes, before its breakpoints are deleted.
const UNFOLLOWED_MILLIS: u64 = 1000;

/// Which processes, and how they are debugged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AttachConfig {
    /// As `-t` takes it.
    pub(crate) target: Option<String>,
    /// As `--ranks` takes it.
    pub(crate) ranks: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(super) hold: StopPolicy,
    pub(super) just_my_code: bool,
    pub(super) paths: PathMappings,
    pub(super) exceptions: Vec<String>,
}

impl AttachConfig {
    pub(super) fn parse(arguments: Attach) -> Result<Self, String> {
        let target =
            match (&arguments.process_id, &arguments.endpoint) {
                (Some(_), Some(_)) => {
                    return Err("processId and endpoint exclude each other".to_owned());
                }
                (Some(pid), None) => Some(
                    number_or_text(pid)
                        .filter(|pid| pid.parse::<u32>().is_ok())
                        .ok_or("processId is not a number")?,
                ),
                (None, Some(endpoint)) => Some(number_or_text(endpoint).ok_or(
                    "endpoint is a pid, HOST:PORT, a script's name, unix:PATH or a capture",
                )?),
                (None, None) if arguments.ranks.is_some() => None,
                (None, None) => {
                    return Err(
                        "the configuration names no process: set endpoint or processId".to_owned(),
                    );
                }
            };
        let mut hold = stop_timeout(arguments.stop_timeout.as_ref())?;
        if arguments.on_disconnect.unwrap_or_default() == OnDisconnect::Resume {
            hold.gone = DisconnectPolicy::Resume;
            hold.connect_millis = hold.connect_millis.min(UNFOLLOWED_MILLIS);
        }
        Ok(Self {
            target,
            ranks: arguments.ranks.as_ref().map(ranks).transpose()?,
            token: arguments.token,
            token_file: arguments.token_file.map(PathBuf::from),
            fingerprint: arguments.fingerprint,
            ca: arguments.ca.map(PathBuf::from),
            hold,
            just_my_code: arguments.just_my_code.unwrap_or(true),
            paths: PathMappings(arguments.path_mappings),
            exceptions: arguments.exceptions,
        })
    }
}

fn number_or_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    }
}

fn ranks(value: &Value) -> Result<String, String> {
    let wrong = || "ranks is text like \"0,2-5\" or \"all\", or a list of numbers".to_owned();
    match value {
        Value::Array(ranks) => {
            let words: Option<Vec<String>> = ranks
                .iter()
                .map(|rank| rank.as_u64().map(|rank| rank.to_string()))
                .collect();
            Ok(words.ok_or_else(wrong)?.join(","))
        }
        value => number_or_text(value).ok_or_else(wrong),
    }
}

/// One time is how long a stop lasts while the editor asks nothing; three are those of `--hold`.
fn stop_timeout(value: Option<&Value>) -> Result<StopPolicy, String> {
    let wrong = || {
        "stopTimeout is seconds, or text like \"30m\" or \"10m,30m,4h\" (connect, idle, total)"
            .to_owned()
    };
    let usual = StopPolicy::default();
    let Some(value) = value else {
        return Ok(usual);
    };
    let text = number_or_text(value).ok_or_else(wrong)?;
    let times: Option<Vec<u64>> = text.split(',').map(|time| millis(time.trim())).collect();
    match times.as_deref() {
        Some([idle]) => Ok(StopPolicy {
            connect_millis: usual.connect_millis.min(*idle),
            idle_millis: *idle,
            total_millis: usual.total_millis.max(*idle),
            ..usual
        }),
        Some([connect, idle, total]) => Ok(StopPolicy {
            connect_millis: *connect,
            idle_millis: *idle,
            total_millis: *total,
            ..usual
        }),
        _ => Err(wrong()),
    }
}

fn millis(text: &str) -> Option<u64> {
    let unit_at = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_millis = match unit {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        "d" => 86_400e3,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    let millis = number * unit_millis;
    (millis.is_finite() && millis >= 1.0).then_some(millis as u64)
}

/// Folders here and the same folders in the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PathMappings(Vec<PathMapping>);

impl PathMappings {
    /// What the target calls a file of the editor's.
    pub(super) fn to_remote(&self, path: &str) -> String {
        let mut each = self.0.iter();
        each.find_map(|it| moved(path, &it.local_root, &it.remote_root))
            .unwrap_or_else(|| path.to_owned())
    }

    /// What the editor calls a file of the target's.
    pub(super) fn to_local(&self, path: &str) -> String {
        let mut each = self.0.iter();
        each.find_map(|it| moved(path, &it.remote_root, &it.local_root))
            .unwrap_or_else(|| path.to_owned())
    }
}

fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(configuration: Value) -> Result<AttachConfig, String> {
        AttachConfig::parse(serde_json::from_value(configuration).unwrap())
    }

    #[test]
    fn one_of_two_names_says_which_process() {
        let target = |configuration| parsed(configuration).map(|it| it.target);
        assert_eq!(target(json!({"processId": 42})), Ok(Some("42".into())));
        assert_eq!(target(json!({"processId": "42"})), Ok(Some("42".into())));
        assert_eq!(target(json!({"endpoint": 42})), Ok(Some("42".into())));
        assert_eq!(
            target(json!({"endpoint": "h:80/7"})),
            Ok(Some("h:80/7".into()))
        );
        assert_eq!(target(json!({"ranks": [0, 2]})), Ok(None));
        for wrong in [
            json!({}),
            json!({"processId": "train.py"}),
            json!({"endpoint": ""}),
            json!({"endpoint": 1, "processId": 1}),
        ] {
            assert!(target(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stop_lasts_as_long_as_the_configuration_says() {
        let hold = |timeout: Value| {
            parsed(json!({"endpoint": 1, "stopTimeout": timeout})).map(|it| it.hold)
        };
        assert_eq!(hold(json!(90)).unwrap().idle_millis, 90_000);
        let day = hold(json!("1d")).unwrap();
        assert_eq!(
            (day.idle_millis, day.total_millis),
            (86_400_000, 86_400_000)
        );
        let all = hold(json!("10s,2m,1h")).unwrap();
        assert_eq!(
            (all.connect_millis, all.idle_millis, all.total_millis),
            (1000, 120_000, 3_600_000)
        );
        assert!(hold(json!("soon")).is_err());
        assert!(hold(json!("1m,2m")).is_err());
        assert_eq!(hold(json!(90)).unwrap().gone, DisconnectPolicy::Resume);
        let kept = parsed(json!({"endpoint": 1, "onDisconnect": "keep"})).unwrap();
        assert_eq!(kept.hold, StopPolicy::default());
    }

    #[test]
    fn paths_are_mapped_both_ways_by_whole_folders() {
        let mapping = |local: &str, remote: &str| PathMapping {
            local_root: local.into(),
            remote_root: remote.into(),
        };
        let paths = PathMappings(vec![
            mapping("/home/ann/app/", "/app"),
            mapping("/l", "/r/"),
        ]);
        assert_eq!(paths.to_remote("/home/ann/app/a/b.py"), "/app/a/b.py");
        assert_eq!(paths.to_local("/app/a/b.py"), "/home/ann/app/a/b.py");
        assert_eq!(paths.to_local("/apple/b.py"), "/apple/b.py");
        assert_eq!(paths.to_local("/r/x.py"), "/l/x.py");
        assert_eq!(paths.to_remote("/else.py"), "/else.py");
    }
}
