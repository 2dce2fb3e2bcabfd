//! The file that says which program a process lane runs: strict JSON, checked whole before use.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// The most bytes a config file may have: 64 KiB.
pub const CONFIG_BYTES: usize = 64 * 1024;
const ARGS: usize = 32;
const ENV_NAMES: usize = 32;
const ARG_CHARS: usize = 4096;
const ARGV_BYTES: usize = 32_768;

/// Says of a variable's name why no lane is ever given it: whoever makes a lane's environment
/// knows the names.
pub type NeverGiven = fn(&str) -> Option<&'static str>;

/// Which program runs, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The program, by absolute path.
    #[schemars(regex(pattern = ABSOLUTE))]
    pub command: PathBuf,
    /// Its arguments; no shell expands them. With `command` at most 32,768 bytes of UTF-8.
    #[serde(default)]
    #[schemars(length(max = ARGS), inner(length(max = ARG_CHARS), regex(pattern = NO_NUL)))]
    pub args: Vec<String>,
    /// The folder it starts in, by absolute path; the copy of the repository where there is none.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "String", regex(pattern = ABSOLUTE))]
    pub cwd: Option<PathBuf>,
    /// Names of environment variables it gets beside the usual few, from the worker's own. Those
    /// that are never given are refused in small letters as well.
    #[serde(default)]
    #[schemars(length(max = ENV_NAMES), inner(regex(pattern = NAME)))]
    pub env: Vec<String>,
}

const ABSOLUTE: &str = "^/[^\0]*$";
const NO_NUL: &str = "^[^\0]*$";
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

/// Why a config is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is longer than [`CONFIG_BYTES`].
    #[error("the file has more than 65536 bytes")]
    TooLong,
    /// It is not JSON, lacks a field, or has one that is not known.
    #[error("not a process lane's config: {0}")]
    NotStrict(#[from] serde_json::Error),
    /// A path does not start at the root.
    #[error("`{field}` is not an absolute path: `{path}`")]
    NotAbsolute {
        /// Which field.
        field: &'static str,
        /// What it says.
        path: String,
    },
    /// A NUL character, which no program can be given.
    #[error("`{0}` holds a NUL character")]
    Nul(&'static str),
    /// A list is too long, or the arguments are.
    #[error("`{field}` has {found} {unit}, more than {most}")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many.
        found: usize,
        /// Of what.
        unit: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A name no environment variable can have.
    #[error("`env` names `{0}`, which is not a variable's name")]
    NotAName(String),
    /// A variable that stays with the worker.
    #[error("`env` names `{name}`, which {why}")]
    Refused {
        /// Its name.
        name: String,
        /// Why.
        why: &'static str,
    },
}

/// Reads a config file's bytes. Of a longer file, one byte more than [`CONFIG_BYTES`] is enough.
///
/// # Errors
/// When a rule of the process worker ABI does not hold; see [`ConfigError`].
pub fn parse_config(bytes: &[u8], never_given: NeverGiven) -> Result<Config, ConfigError> {
    if bytes.len() > CONFIG_BYTES {
        return Err(ConfigError::TooLong);
    }
    let config: Config = serde_json::from_slice(bytes)?;
    check_path("command", &config.command)?;
    if let Some(cwd) = &config.cwd {
        check_path("cwd", cwd)?;
    }
    check_args(&config)?;
    at_most("env", config.env.len(), "names", ENV_NAMES)?;
    config.env.iter().try_for_each(|name| check_name(name, never_given))?;
    Ok(config)
}

fn check_path(field: &'static str, path: &Path) -> Result<(), ConfigError> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(ConfigError::Nul(field));
    }
    if !path.is_absolute() {
        return Err(ConfigError::NotAbsolute { field, path: path.display().to_string() });
    }
    Ok(())
}

fn check_args(config: &Config) -> Result<(), ConfigError> {
    at_most("args", config.args.len(), "arguments", ARGS)?;
    let mut argv_bytes = config.command.as_os_str().len();
    for arg in &config.args {
        if arg.contains('\0') {
            return Err(ConfigError::Nul("args"));
        }
        at_most("args", arg.chars().count(), "characters in one argument", ARG_CHARS)?;
        argv_bytes += arg.len();
    }
    at_most("args", argv_bytes, "bytes with the command", ARGV_BYTES)
}

fn check_name(name: &str, never_given: NeverGiven) -> Result<(), ConfigError> {
    let mut letters = name.bytes();
    let starts = letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !starts || !letters.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(ConfigError::NotAName(name.escape_debug().take(80).collect()));
    }
    never_given(name).map_or(Ok(()), |why| Err(ConfigError::Refused { name: name.to_owned(), why }))
}

fn at_most(
    field: &'static str,
    found: usize,
    unit: &'static str,
    most: usize,
) -> Result<(), ConfigError> {
    if found > most {
        return Err(ConfigError::TooMany { field, found, unit, most });
    }
    Ok(())
}

/// An optional field that, where it stands, holds a value: `null` is not one.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    PathBuf::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Stands for the list of whoever makes a lane's environment.
    fn never(name: &str) -> Option<&'static str> {
        (name == "KEPT_BACK").then_some("is never given to a lane")
    }

    fn parse(value: &Value) -> Result<Config, ConfigError> {
        parse_config(value.to_string().as_bytes(), never)
    }

    fn refusal(value: &Value) -> String {
        parse(value).expect_err("this config must be refused").to_string()
    }

    #[test]
    fn the_whole_and_the_short_form() {
        let whole = parse(&json!({
            "command": "/usr/bin/python3", "args": ["/opt/w.py", "--x"], "cwd": "/opt",
            "env": ["MY_PROVIDER_API_KEY", "_x9"],
        }))
        .unwrap();
        assert_eq!(whole.args, ["/opt/w.py", "--x"]);
        assert_eq!(whole.cwd.as_deref(), Some(Path::new("/opt")));
        assert_eq!(whole.env, ["MY_PROVIDER_API_KEY", "_x9"]);
        let short = parse(&json!({"command": "/bin/true"})).unwrap();
        assert_eq!((short.args.len(), short.env.len(), short.cwd), (0, 0, None));
    }

    #[test]
    fn it_is_strict_json() {
        for text in [
            "",
            "[]",
            r#"{"command":"/bin/true","shell":true}"#,
            r#"{"command":"/bin/true","command":"/bin/false"}"#,
            r#"{"args":[]}"#,
            r#"{"command":"/bin/true","cwd":null}"#,
            r#"{"command":"/bin/true","args":[1]}"#,
            r#"{"command":"/bin/true",}"#,
            r#"{"command":"/bin/true"} {}"#,
            "\u{feff}{\"command\":\"/bin/true\"}",
        ] {
            assert!(
                matches!(parse_config(text.as_bytes(), never), Err(ConfigError::NotStrict(_))),
                "{text}"
            );
        }
        assert!(parse_config(b"{\"command\":\"/bin/\xff\"}", never).is_err());
    }

    #[test]
    fn paths_are_absolute_and_without_nul() {
        assert_eq!(
            refusal(&json!({"command": "python3"})),
            "`command` is not an absolute path: `python3`"
        );
        assert!(refusal(&json!({"command": "/a", "cwd": "b"})).starts_with("`cwd`"));
        assert!(refusal(&json!({"command": "/a\0b"})).contains("NUL"));
        assert!(refusal(&json!({"command": "/a", "cwd": "/\0"})).contains("NUL"));
        assert!(refusal(&json!({"command": "/a", "args": ["\0"]})).contains("NUL"));
    }

    #[test]
    fn each_limit_holds_at_its_edge() {
        let args =
            |n: usize, len: usize| json!({"command": "/a", "args": vec!["é".repeat(len); n]});
        assert!(parse(&args(32, 1)).is_ok());
        assert!(refusal(&args(33, 1)).contains("33 arguments"));
        assert!(parse(&args(1, 4096)).is_ok());
        assert!(refusal(&args(1, 4097)).contains("4097 characters"));
        // Two bytes for the command, 32,766 for the arguments.
        let mut argv = vec!["x".repeat(4096); 7];
        argv.push("x".repeat(32_766 - 7 * 4096));
        assert!(parse(&json!({"command": "/a", "args": argv})).is_ok());
        argv[7].push('x');
        assert!(refusal(&json!({"command": "/a", "args": argv})).contains("32769 bytes"));

        let names = |n: usize| json!({"command": "/a", "env": vec!["A"; n]});
        assert!(parse(&names(32)).is_ok());
        assert!(refusal(&names(33)).contains("33 names"));

        let mut file = json!({"command": "/a"}).to_string().into_bytes();
        file.resize(CONFIG_BYTES, b' ');
        assert!(parse_config(&file, never).is_ok());
        file.push(b' ');
        assert!(matches!(parse_config(&file, never), Err(ConfigError::TooLong)));
    }

    #[test]
    fn a_name_is_a_variables_and_one_that_is_given() {
        assert_eq!(
            refusal(&json!({"command": "/a", "env": ["MINE", "KEPT_BACK"]})),
            "`env` names `KEPT_BACK`, which is never given to a lane"
        );
        for name in ["", "1A", "A-B", "A=B", "A B", "Ä", "A\0"] {
            assert!(refusal(&json!({"command": "/a", "env": [name]})).contains("not a var"));
        }
    }
}
