//! The audit log: a line of JSON for each action, in a file that only its user can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use probing_proto::agent::AuditLine;
use probing_proto::process::Pid;
use probing_proto::text::timestamp::utc;
use probing_proto::text::visible;
use ring::digest::{SHA256, digest};

/// Beyond this the file becomes `audit.log.1`, and another is begun.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// So much of the code is told. Of longer code there are the length and the hash, too.
const MAX_CODE_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    /// Held while a line is written.
    writing: Mutex<()>,
}

/// Somebody who was let in, for one request.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) from: String,
    pub(crate) token: String,
    /// Whether a line says what it asked for.
    noted: Arc<AtomicBool>,
}

impl Actor {
    pub(crate) fn new(from: String, token: String) -> Self {
        Self {
            from,
            token,
            noted: Arc::default(),
        }
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.noted.load(Ordering::Acquire)
    }
}

impl AuditLog {
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
        pid: Option<Pid>,
        code: Option<&str>,
    ) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let cut = code.filter(|code| code.len() > MAX_CODE_BYTES);
        let line = AuditLine {
            time: utc(now.unwrap_or_default().as_nanos() as u64),
            from: actor.from.clone(),
            token: actor.token.clone(),
            action: action.to_owned(),
            pid,
            code: code.map(|code| start_of(code).to_owned()),
            code_bytes: cut.map(|code| code.len() as u64),
            code_sha256: cut.map(sha256),
        };
        let mut bytes = visible::json(serde_json::to_string(&line)?).into_bytes();
        bytes.push(b'\n');
        let _alone = self.writing.lock();
        if fs::metadata(&self.path).is_ok_and(|file| file.len() > MAX_FILE_BYTES) {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(&bytes)?;
        actor.noted.store(true, Ordering::Release);
        Ok(())
    }
}

fn start_of(code: &str) -> &str {
    &code[..code.floor_char_boundary(MAX_CODE_BYTES)]
}

fn sha256(code: &str) -> String {
    let hash = digest(&SHA256, code.as_bytes());
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_line_says_who_did_what_and_only_the_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = AuditLog::at(path.clone());
        let actor = Actor::new("10.0.0.7:1234".to_owned(), "control 0a1b2c3d".to_owned());
        assert!(!actor.is_noted());
        let pid = Some(Pid(42));
        audit.note(&actor, "eval", pid, Some("x = 1\ny")).unwrap();
        assert!(actor.is_noted());
        let long = "é".repeat(MAX_CODE_BYTES);
        audit.note(&actor, "eval", pid, Some(&long)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<AuditLine> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0].code.as_deref(), Some("x = 1\ny"));
        assert_eq!(
            (lines[0].pid, lines[0].from.as_str()),
            (pid, "10.0.0.7:1234")
        );
        assert_eq!((lines[0].code_bytes, &lines[0].code_sha256), (None, &None));
        let told = lines[1].code.as_deref().unwrap();
        assert_eq!(told, &long[..MAX_CODE_BYTES]);
        assert_eq!(lines[1].code_bytes, Some(long.len() as u64));
        assert_eq!(lines[1].code_sha256, Some(sha256(&long)));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
