//! Names and ids as types: a value that exists is a value that was checked.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Why a text is not the id it was meant to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct IdError {
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// What was expected, as a noun phrase with an example.
    pub expected: &'static str,
}

impl IdError {
    fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(80).collect(), expected }
    }
}

/// A text newtype whose only door is its check; serialised as the text.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:expr, $expected:literal, $pattern:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text as it is stored and shown.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(IdError::new(text, $expected)) }
            }
        }
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        described_text!($name, $expected, $pattern);
    };
}

/// How the text is told in the API's document: `pattern` is as close to the check as a pattern gets.
macro_rules! described_text {
    ($name:ident, $expected:literal, $pattern:expr) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $expected, "pattern": $pattern })
            }
        }
    };
}

/// A UUID as the site writes it.
const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

checked_text!(
    /// A worker's id: a UUIDv7 given by the site, stable for a worker's name.
    WorkerId, is_uuid, "a worker id", UUID
);
checked_text!(
    /// One start of a worker process. A new instance of a name ends the old one's leases.
    InstanceId, is_uuid, "an instance id", UUID
);
checked_text!(
    /// Written to the worker's disk before it claims, so that a lost answer can be asked for again.
    ClaimId, is_uuid, "a claim id", UUID
);
checked_text!(
    /// One run of one lane under one epoch.
    RunId, is_uuid, "a run id", UUID
);
checked_text!(
    /// What a worker is called by people; unique on a site.
    WorkerName,
    |t| (1..=64).contains(&t.len()) && t.chars().all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c)),
    "a worker's name (1 to 64 of a-z, 0-9, `.`, `_`, `-`, `@`)",
    "^[A-Za-z0-9._@-]{1,64}$"
);
checked_text!(
    /// A token's id, which is no secret.
    TokenId, is_uuid, "a token id", UUID
);
checked_text!(
    /// What a token is called by people.
    TokenName,
    |t| (1..=64).contains(&t.len()) && t.chars().all(|c| c.is_ascii_alphanumeric() || "._-@:".contains(c)),
    "a token's name (1 to 64 of a-z, 0-9, `.`, `_`, `-`, `@`, `:`)",
    "^[A-Za-z0-9._@:-]{1,64}$"
);
checked_text!(
    /// A capability that a worker advertises and a project can require, such as `gpu`.
    Label,
    |t| (1..=64).contains(&t.len())
        && t.chars().all(|c| c.is_ascii_alphanumeric() || "._:-".contains(c)),
    "a label (1 to 64 of a-z, 0-9, `.`, `_`, `:`, `-`)",
    "^[A-Za-z0-9._:-]{1,64}$"
);
checked_text!(
    /// A lane: `claude`, `codex`, `grok`, or `process:NAME`.
    LaneName, is_lane, "a lane (`claude`, `codex`, `grok` or `process:NAME`)",
    "^(process:)?[a-z0-9][a-z0-9_-]{0,39}$"
);

checked_text!(
    /// A vendor's name for a model, such as `opus` or `claude-sonnet-4-5`. It becomes an argument
    /// of the vendor's program, so it cannot look like a flag.
    ModelName, is_model, "a model's name (1 to 100 of a-z, 0-9, `.`, `_`, `:`, `/`, `@`, `[`, `]`, `-`)",
    "^[A-Za-z0-9][A-Za-z0-9._:/@\\[\\]-]{0,99}$"
);

impl LaneName {
    /// The name where a colon cannot stand: in branches, folders and refs.
    #[must_use]
    pub fn dashed(&self) -> String {
        self.0.replace(':', "-")
    }

    /// Claude Code's lane.
    #[must_use]
    pub fn claude() -> Self {
        Self("claude".to_owned())
    }

    /// NAME of a `process:NAME` lane.
    #[must_use]
    pub fn process_name(&self) -> Option<&str> {
        self.0.strip_prefix("process:")
    }
}

/// `owner/name` of a repository; a local one is `local/<name>`. Also a project's slug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoName {
    owner: String,
    name: String,
}

impl RepoName {
    /// The part before the slash; `local` for a repository on this disk.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The part after the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this names a repository on somebody's disk.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.owner == "local"
    }
}

impl FromStr for RepoName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new(text, "a repository (`owner/name`)");
        let (owner, name) = text.split_once('/').ok_or_else(bad)?;
        if !is_repo_part(owner) || !is_repo_part(name) {
            return Err(bad());
        }
        Ok(Self { owner: owner.to_owned(), name: name.to_owned() })
    }
}

/// A task: one issue and one lane, written `owner/repo#12`, or `owner/repo#12:codex` where the
/// issue has several lanes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId {
    /// The repository the issue stands in.
    pub repo: RepoName,
    /// The number.
    pub number: u64,
    /// Set only for the second and later lanes of one issue.
    pub lane: Option<LaneName>,
}

impl FromStr for TaskId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new(text, "a task id (`owner/repo#12` or `owner/repo#12:lane`)");
        let (repo, rest) = text.split_once('#').ok_or_else(bad)?;
        let (number, lane) = match rest.split_once(':') {
            Some((number, lane)) => (number, Some(lane.parse().map_err(|_| bad())?)),
            None => (rest, None),
        };
        // Only the canonical form: `+7` and `007` would be second names of one task.
        let parsed: u64 = number.parse().map_err(|_| bad())?;
        if parsed == 0 || parsed > i64::MAX as u64 || parsed.to_string() != number {
            return Err(bad());
        }
        Ok(Self { repo: repo.parse().map_err(|_| bad())?, number: parsed, lane })
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.repo, self.number)?;
        self.lane.as_ref().map_or(Ok(()), |lane| write!(f, ":{lane}"))
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Serialised as its text, like the checked texts above.
macro_rules! text_conversions {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}
text_conversions!(RepoName);
text_conversions!(TaskId);
described_text!(
    RepoName,
    "a repository (`owner/name`)",
    "^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}/[A-Za-z0-9_][A-Za-z0-9_-]{0,99}$"
);
described_text!(
    TaskId,
    "a task id (`owner/repo#12` or `owner/repo#12:lane`)",
    "^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}/[A-Za-z0-9_][A-Za-z0-9_-]{0,99}#[1-9][0-9]{0,17}(:(process:)?[a-z0-9][a-z0-9_-]{0,39})?$"
);

/// Counts the claims of one task. Every write of a worker names it, and an older one lands nowhere.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Epoch(pub i64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        })
}

fn is_lane(text: &str) -> bool {
    let part = |p: &str| {
        (1..=40).contains(&p.len())
            && p.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && p.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    match text.split_once(':') {
        Some(("process", name)) => part(name),
        Some(_) => false,
        None => part(text) && text != "process",
    }
}

fn is_model(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._:/@[]-".contains(c))
}

/// GitHub's own alphabet, less what could be read as a flag, a parent folder or a hidden file of git.
fn is_repo_part(part: &str) -> bool {
    (1..=100).contains(&part.len())
        && !part.starts_with(['-', '.'])
        && !part.ends_with(".git")
        && !part.ends_with(".lock")
        && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_are_read_back_as_written() {
        for text in ["acme/shop#12", "acme/shop#12:codex", "local/scratch#1:process:edit"] {
            assert_eq!(text.parse::<TaskId>().map(|t| t.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_task_has_one_name() {
        for text in [
            "acme/shop#0",
            "acme/shop#+7",
            "acme/shop#007",
            "acme/shop",
            "acme#1",
            "a/b/c#1",
            "../x#1",
            "acme/..#1",
            "-a/b#1",
            "acme/shop#1:",
            "acme/shop#1:no:pe",
            "a b/c#1",
            "acme/shop#99999999999999999999",
        ] {
            assert!(text.parse::<TaskId>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn lanes_are_named_by_a_closed_alphabet() {
        for text in ["claude", "claude-cloud", "process:edit", "process:my_edit-2"] {
            assert!(text.parse::<LaneName>().is_ok(), "{text} was refused");
        }
        for text in ["", "process", "process:", "Process:x", "a/b", "process:../x", "x:y", "-x"] {
            assert!(text.parse::<LaneName>().is_err(), "{text} was taken");
        }
        assert_eq!(
            "process:edit".parse::<LaneName>().map(|l| l.dashed()),
            Ok("process-edit".to_owned())
        );
    }

    #[test]
    fn a_models_name_is_no_flag_and_no_second_argument() {
        for text in ["opus", "opus[1m]", "us.anthropic.claude-opus-4-20250514-v1:0", "a/b@c"] {
            assert!(text.parse::<ModelName>().is_ok(), "{text} was refused");
        }
        for text in ["", "-p", "--model", "a b", "a\n", "$(x)", "é", "[1m]", &"x".repeat(101)] {
            assert!(text.parse::<ModelName>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn ids_from_outside_are_checked_by_serde_too() {
        assert!(serde_json::from_str::<WorkerId>("\"not-a-uuid\"").is_err());
        assert!(serde_json::from_str::<RepoName>("\"a/b\"").is_ok());
        assert!(serde_json::from_str::<RepoName>("\"a/../b\"").is_err());
    }
}
