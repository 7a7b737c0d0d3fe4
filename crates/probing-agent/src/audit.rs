//! Who did what through this agent: a line of JSON for each action, in a file that only its user may read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use probing_proto::agent::AuditLine;
use probing_proto::clock::utc;
use probing_proto::process::Pid;
use probing_proto::visible;

/// Beyond this the file becomes `audit.log.1`, and another is begun.
const MOST: u64 = 16 << 20;
/// So much of the code is told.
const MOST_CODE: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    /// Held while a line is written.
    writing: Mutex<()>,
}

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) from: String,
    pub(crate) token: String,
}

impl Audit {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            writing: Mutex::default(),
        }
    }

    /// Writes what is about to be done. Where that cannot be written, it is not done.
    pub(crate) fn note(
        &self,
        actor: &Actor,
        action: &str,
        pid: Pid,
        code: Option<&str>,
    ) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = AuditLine {
            time: utc(now.unwrap_or_default().as_nanos() as u64),
            from: actor.from.clone(),
            token: actor.token.clone(),
            action: action.to_owned(),
            pid,
            code: code.map(cut),
        };
        let mut bytes = visible::json(serde_json::to_string(&line)?).into_bytes();
        bytes.push(b'\n');
        let _alone = self.writing.lock();
        if fs::metadata(&self.path).is_ok_and(|file| file.len() > MOST) {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(&bytes)
    }
}

fn cut(code: &str) -> String {
    if code.len() <= MOST_CODE {
        return code.to_owned();
    }
    let end = code.floor_char_boundary(MOST_CODE);
    format!("{}… ({} bytes more)", &code[..end], code.len() - end)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_line_says_who_did_what_and_only_the_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::at(path.clone());
        let actor = Actor {
            from: "10.0.0.7:1234".to_owned(),
            token: "control 0a1b2c3d".to_owned(),
        };
        audit
            .note(&actor, "eval", Pid(42), Some("x = 1\ny"))
            .unwrap();
        audit
            .note(&actor, "eval", Pid(42), Some(&"é".repeat(MOST_CODE)))
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<AuditLine> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0].code.as_deref(), Some("x = 1\ny"));
        assert_eq!(
            (lines[0].pid, lines[0].from.as_str()),
            (Pid(42), "10.0.0.7:1234")
        );
        assert!(
            lines[1]
                .code
                .as_ref()
                .unwrap()
                .ends_with(&format!("… ({MOST_CODE} bytes more)"))
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
