//! Tokens: the secrets for control and for observers.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use probing_client::{ChannelBinding, token_key, token_proof};
use probing_proto::agent::{MIN_TOKEN, Role, tokens_in};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::{Choice, ConstantTimeEq as _};

use crate::error::AgentError;

/// Those whom this agent knows.
#[derive(Clone)]
pub(crate) struct Tokens(Vec<TokenHash>);

/// A token, by its hash: of the same length whatever the token is, and nothing to read in a core file.
#[derive(Clone)]
struct TokenHash {
    role: Role,
    hash: [u8; 32],
}

/// Whoever showed a token that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) role: Role,
    /// What the log calls it.
    pub(crate) name: String,
}

impl Tokens {
    /// Those in these files, which are secret, and these; with `read_only` nobody may do more than look.
    pub(crate) fn of(
        files: &[&Path],
        more: Option<&str>,
        read_only: bool,
    ) -> Result<Self, AgentError> {
        let mut known = Vec::new();
        for path in files {
            let tokens = tokens_in(&secret(path)?);
            if tokens.is_empty() {
                let path = (*path).to_owned();
                return Err(AgentError::NoTokens { path });
            }
            check_lengths(&tokens, &format!("in {}", path.display()))?;
            known.extend(tokens);
        }
        let more: Vec<_> = more
            .map(|token| (Role::Control, token.trim().to_owned()))
            .into_iter()
            .collect();
        check_lengths(&more, "of PROBING_TOKEN")?;
        known.extend(more);
        let most = if read_only {
            Role::Observe
        } else {
            Role::Control
        };
        let known = known.into_iter().map(|(role, token)| TokenHash {
            role: role.min(most),
            hash: token_key(token.as_bytes()),
        });
        Ok(Self(known.collect()))
    }

    /// Who shows this. Takes as long for a wrong one, however much of it is right.
    pub(crate) fn bearer(&self, shown: &[u8]) -> Option<Bearer> {
        let shown = token_key(shown);
        self.found(|known| known.hash.ct_eq(&shown))
    }

    /// Who proves to know one of them on the connection of this binding. The same holds.
    pub(crate) fn prover(&self, proof: &[u8; 32], binding: &ChannelBinding) -> Option<Bearer> {
        self.found(|known| token_proof(&known.hash, binding).ct_eq(proof))
    }

    fn found(&self, is_it: impl Fn(&TokenHash) -> Choice) -> Option<Bearer> {
        let mut found = None;
        for known in &self.0 {
            if bool::from(is_it(known)) {
                found = Some(known);
            }
        }
        let found = found?;
        let role = match found.role {
            Role::Observe => "observe",
            Role::Control => "control",
        };
        let digits: String = found.hash[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(Bearer {
            role: found.role,
            name: format!("{role} {digits}"),
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// Wherever a token comes from, it is none that can be found by trying.
fn check_lengths(tokens: &[(Role, String)], place: &str) -> Result<(), AgentError> {
    let mut lengths = tokens.iter().map(|(_, token)| token.len());
    match lengths.find(|length| *length < MIN_TOKEN) {
        Some(length) => Err(AgentError::ShortToken {
            place: place.to_owned(),
            length,
        }),
        None => Ok(()),
    }
}

/// What stands in a file that only its owner may read.
fn secret(path: &Path) -> Result<String, AgentError> {
    let failed = |source| AgentError::File {
        path: path.to_owned(),
        source,
    };
    // What is checked is what is read.
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(AgentError::OpenSecret { path, mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Makes a file with a token for each role, unless it is there.
pub(crate) fn make(path: &Path) -> Result<(), AgentError> {
    let failed = |source| AgentError::File {
        path: path.to_owned(),
        source,
    };
    let unready = path.with_extension(format!("new.{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unready)
        .map_err(failed)?;
    let text = format!("control {}\nobserve {}\n", fresh(), fresh());
    file.write_all(text.as_bytes()).map_err(failed)?;
    // Whole, or not at all; and who comes second takes what the first has made.
    let linked = fs::hard_link(&unready, path);
    fs::remove_file(&unready).map_err(failed)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(error)),
        _ => Ok(()),
    }
}

/// 32 random bytes, in hexadecimal digits.
fn fresh() -> String {
    let mut bytes = [0; 32];
    // The kernel always has some.
    SystemRandom::new()
        .fill(&mut bytes)
        .unwrap_or_else(|error| unreachable!("no random bytes: {error}"));
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const MINE: &str = "mine, and nobody else has it";

    #[test]
    fn a_token_that_can_be_guessed_is_refused_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let (short, long) = ("x".repeat(MIN_TOKEN - 1), "x".repeat(MIN_TOKEN));
        let of = |text: &str, more: Option<&str>| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            Tokens::of(&[&path], more, false)
        };
        let refused = |text: &str, more| match of(text, more) {
            Err(AgentError::ShortToken { length, .. }) => length == short.len(),
            _ => false,
        };
        assert!(of(&long, Some(&long)).is_ok());
        assert!(refused(&short, None));
        assert!(refused(&format!("control {long}\nobserve {short}\n"), None));
        assert!(refused(&long, Some(&short)));
        assert!(refused(&long, Some(&format!("{short}  "))));
    }

    #[test]
    fn a_token_is_known_by_its_role_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        make(&path).unwrap();
        make(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let made = tokens_in(&text);
        assert_eq!(
            made.iter().map(|(role, _)| *role).collect::<Vec<_>>(),
            [Role::Control, Role::Observe]
        );
        let tokens = Tokens::of(&[&path], Some(MINE), false).unwrap();
        let role = |token: &str| tokens.bearer(token.as_bytes()).map(|bearer| bearer.role);
        assert_eq!(role(&made[0].1), Some(Role::Control));
        assert_eq!(role(&made[1].1), Some(Role::Observe));
        assert_eq!(role(MINE), Some(Role::Control));
        for wrong in [
            "",
            "mine, and nobody else has it ",
            &MINE[..MINE.len() - 1],
            &made[0].1[..63],
            &made[0].1.to_uppercase(),
        ] {
            assert_eq!(role(wrong), None, "{wrong}");
        }
        let read_only = Tokens::of(&[&path], Some(MINE), true).unwrap();
        let bearer = read_only.bearer(MINE.as_bytes()).unwrap();
        assert_eq!(bearer.role, Role::Observe);
        assert!(!format!("{tokens:?} {bearer:?}").contains(MINE));
    }

    #[test]
    fn a_secret_that_others_may_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Tokens::of(&[&path], None, false).unwrap_err();
        assert!(matches!(
            refused,
            AgentError::OpenSecret { mode: 0o640, .. }
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "# none\n").unwrap();
        let refused = Tokens::of(&[&path], None, false).unwrap_err();
        assert!(matches!(refused, AgentError::NoTokens { .. }));
    }
}
