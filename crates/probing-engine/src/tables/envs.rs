//! `process.envs`: environment variables, without the secrets that people keep there.

use std::borrow::Cow;

use crate::columns::rows::{RowsBuilder, Value};
use crate::columns::{Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

pub(crate) const TABLE: Table = Table {
    name: "process.envs",
    doc: "Environment variables that the process was started with. Values that look like secrets, by name or value, \
          are not shown.",
    columns: &[
        col("name", Kind::Text, "the variable"),
        col(
            "value",
            Kind::Text,
            "its value; <redacted> where it looks like a secret",
        ),
    ],
    example: "SELECT name, value FROM process.envs WHERE name LIKE 'CUDA%' OR name LIKE 'NCCL%' ORDER BY name",
    needs: |_| Needs::default(),
    fill,
};

const REDACTED: &str = "<redacted>";

/// A word of a name, between underscores, that says what the value is.
const SECRET_WORDS: [&str; 20] = [
    "APIKEY",
    "AUTH",
    "COOKIE",
    "CRED",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "DSN",
    "KEY",
    "KEYS",
    "PASS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PRIVATE",
    "PWD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];
/// What tokens of well known services begin with.
const SECRET_STARTS: [&str; 14] = [
    "AKIA",
    "ASIA",
    "Basic ",
    "Bearer ",
    "eyJ",
    "gho_",
    "ghp_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxb-",
    "-----BEGIN",
];

fn fill(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    let Some(variables) = &seen.facts()?.variables else {
        return Err(ReadFailure {
            message: "not permitted to read the environment of the process".to_owned(),
            hint: Some(
                "run `probing` as the user of the process, or as root (docs/permissions.md)"
                    .to_owned(),
            ),
        });
    };
    for (name, value) in variables {
        rows.push([name.into(), Value::Text(shown(name, value))]);
    }
    Ok(())
}

fn shown<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if value.is_empty() {
        return value.into();
    }
    let name = name.to_ascii_uppercase();
    // Where one is, and no password.
    let is_folder = matches!(name.as_str(), "PWD" | "OLDPWD");
    let mut words = name.split(|character: char| !character.is_ascii_alphanumeric());
    let is_secret = words.any(|word| {
        SECRET_WORDS.contains(&word)
            || ["TOKEN", "PASSWORD", "SECRET", "APIKEY"]
                .iter()
                .any(|end| word.ends_with(end))
    });
    let begins = SECRET_STARTS.iter().any(|start| value.starts_with(start));
    if (is_secret && !is_folder) || begins {
        return REDACTED.into();
    }
    without_password(value)
}

/// `postgres://me:secret@host/` without the secret; every address in the text.
fn without_password(value: &str) -> Cow<'_, str> {
    let mut rest = value;
    let mut shown = String::new();
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = behind
            .find(['/', '?', '#', ',', ' ', '\n'])
            .unwrap_or(behind.len());
        let (authority, after) = behind.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split_once(':').map_or("", |(user, _)| user);
                let colon = if user.is_empty() { "" } else { ":" };
                shown.push_str(&format!("{user}{colon}{REDACTED}@{host}"));
            }
            None => shown.push_str(authority),
        }
        rest = after;
    }
    if shown.is_empty() {
        return value.into();
    }
    shown.push_str(rest);
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "WANDB_API_KEY",
            "HF_TOKEN",
            "PROBING_TOKEN",
            "DB_PASSWORD",
            "PGPASSWORD",
            "GITHUBTOKEN",
            "my_secret",
            "SENTRY_DSN",
            "SSH_PRIVATE",
            "MYSQL_PWD",
            "npm_config__auth",
        ] {
            assert_eq!(shown(name, "x"), REDACTED, "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "KEYBOARD",
            "TOKENIZERS_PARALLELISM",
            "RANK",
            "LOCAL_RANK",
            "XDG_SESSION_ID",
            "MONKEY",
            "AUTHOR",
            "NCCL_DEBUG",
            "PASSENGERS",
        ] {
            assert_eq!(shown(name, "x"), "x", "{name}");
        }
        assert_eq!(shown("HF_TOKEN", ""), "");
    }

    #[test]
    fn secrets_are_known_by_their_values() {
        for value in [
            "ghp_abc",
            "sk-abc",
            "eyJhbGciOi",
            "Bearer abc",
            "-----BEGIN RSA PRIVATE KEY-----",
        ] {
            assert_eq!(shown("X", value), REDACTED, "{value}");
        }
        let check = |value: &str, expected: &str| assert_eq!(shown("X", value), expected);
        check(
            "postgres://me:pw@db:5432/x?y",
            "postgres://me:<redacted>@db:5432/x?y",
        );
        check("https://token@host/", "https://<redacted>@host/");
        check(
            "redis://:p@ss@h,redis://h2",
            "redis://<redacted>@h,redis://h2",
        );
        check("http://proxy:3128", "http://proxy:3128");
        check("a@b://c", "a@b://c");
        check("/usr/bin:/bin", "/usr/bin:/bin");
    }
}
