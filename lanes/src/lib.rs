//! Lanes: what relay knows about each coding agent's program. A lane *describes* (arguments, input,
//! limits, and how to read what comes back); it spawns nothing, reads no environment and no clock.
//!
//! Adding a vendor's lane is one folder with the same functions as [`claude`], its [`Vendor`] in
//! [`VENDORS`], and one line where `work` chooses.

use std::ffi::OsString;
use std::path::Path;

mod calendar;
pub mod claude;
pub mod codex;
pub mod fx;
pub mod grok;
mod known;
mod mention;
pub mod process;
mod text;
mod vendor;

pub use known::{Known, Span, Weight};
pub use vendor::{Beside, Home, Vendor};

/// The vendors' programs, in the order in which they are shown.
pub const VENDORS: &[&Vendor] = &[&claude::VENDOR, &codex::VENDOR, &grok::VENDOR];

/// The most of a lane's own words kept as a run's summary, in UTF-8 bytes. The process ABI sets
/// this number for a reply; it also leaves room under a forge's limit for a comment (65,536).
pub const SUMMARY_BYTES: usize = 16_000;

/// What a login probe said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// There is a login. It may still be refused: the probe does not ask the vendor.
    Ready {
        /// What kind of login, for a person.
        detail: String,
    },
    /// There is none.
    NotLoggedIn {
        /// What the program said, or what to do.
        detail: String,
    },
    /// The answer could not be read.
    Unclear {
        /// What came back.
        detail: String,
    },
}

impl Login {
    /// Where what `asked` was answered with, an exit code and what was `said`, tells nothing of a login.
    fn unclear(asked: &str, code: Option<i32>, said: &str) -> Self {
        let code = code.map_or_else(|| "no code".to_owned(), |code| format!("code {code}"));
        let detail = match text::one_line(said, 200) {
            said if said.is_empty() => format!("`{asked}` said nothing ({code})"),
            said => format!("`{asked}` said ({code}): {said}"),
        };
        Self::Unclear { detail }
    }
}

/// One run, as a vendor's lane needs it.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// The whole prompt.
    pub prompt: &'a str,
    /// The lane's copy of the repository.
    pub workdir: &'a Path,
    /// The vendor's name for the model.
    pub model: &'a str,
    /// The sandbox's settings document as JSON text; `None` runs without a sandbox.
    pub settings: Option<&'a str>,
    /// The most turns the agent may take.
    pub max_turns: u32,
}

/// How a lane's program is called, and how much it may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Arguments after the program's own name.
    pub args: Vec<OsString>,
    /// Everything the program gets on its standard input.
    pub stdin: Vec<u8>,
    /// Whether the program tells what it does while it works, so that silence means a stall.
    pub streams_events: bool,
    /// The most bytes on standard output; more ends the run.
    pub stdout_total: u64,
    /// The most bytes of one line of it.
    pub stdout_line: usize,
    /// The most bytes on standard error.
    pub stderr_total: u64,
    /// Whether more on standard error ends the run; otherwise its end is kept.
    pub stderr_over_kills: bool,
}

/// Something for the run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The agent's own words.
    Text(String),
    /// A tool call.
    Tool {
        /// The tool's name.
        name: String,
        /// What it is called with, in one short line.
        detail: String,
    },
    /// Something about the run itself, such as a failed tool call.
    Note(String),
}

/// Reads one run of a program: its output line by line, then its end.
pub trait Reader: Send {
    /// Takes one line of standard output, without its line end.
    fn line(&mut self, line: &[u8]) -> Vec<Said>;
    /// Whether it waits for its vendor: the last it said is so, or the vendor has not answered yet.
    /// It may say so for ever, or nothing; the worker ends the run then.
    fn waits_for_vendor(&self) -> bool {
        false
    }
    /// Says how the run ended. Whether it changed anything is told by git alone.
    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict;
}

/// How the program ended, as the worker saw it.
#[derive(Clone, Copy, Debug)]
pub struct Exit<'a> {
    /// Its exit code, where it exited.
    pub code: Option<i32>,
    /// The signal that ended it, where one did.
    pub signal: Option<i32>,
    /// The end of its standard error.
    pub stderr: &'a str,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether it was ended because it said more than [`Invocation`] allows.
    pub over_limit: bool,
    /// How much it wrote on standard output, as it wrote it.
    pub stdout_bytes: u64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Why it ended.
    pub reason: Reason,
    /// The lane's own last words, at most [`SUMMARY_BYTES`].
    pub summary: Option<String>,
    /// What went wrong, for a person.
    pub error: Option<String>,
    /// What a person can do about it.
    pub hint: Option<String>,
    /// What it cost.
    pub usage: LaneUsage,
    /// A note the lane leaves for later, beside its summary.
    pub note: Option<String>,
}

/// Why a lane's program ended: what can be told from its output and exit alone. Time limits,
/// stalls and cancels are seen by the worker, not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It finished.
    Done,
    /// It said that there is nothing to do.
    Skipped,
    /// It used up its turns.
    MaxTurns,
    /// It reached its money limit.
    Budget,
    /// It has no valid login.
    NotLoggedIn,
    /// It refused what the run needs, or the model refused the work.
    PermissionRefused,
    /// It could not box its commands.
    SandboxUnavailable,
    /// It could not reach its vendor, or the vendor is overloaded.
    VendorUnreachable,
    /// It, or its vendor, answered with an error.
    VendorError,
    /// Its output was not what its contract says.
    ProtocolViolation,
    /// It died without an answer.
    Crashed,
    /// A quota or rate limit is used up.
    Quota {
        /// When it opens again, in milliseconds since 1970, where the vendor said so.
        until_ms: Option<i64>,
    },
}

/// What a program reported of its cost. `None` is "not reported", never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneUsage {
    /// The model that did most of the work.
    pub model: Option<String>,
    /// Input tokens that were not read from a cache.
    pub input_tokens: Option<u64>,
    /// Input tokens read from the vendor's cache.
    pub cache_read_tokens: Option<u64>,
    /// Input tokens written to the vendor's cache.
    pub cache_write_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Calls of a model, where the program counts them.
    pub model_calls: Option<u64>,
    /// Turns of the agent.
    pub turns: Option<u64>,
    /// The vendor's own estimate at list price, in US dollars.
    pub cost_usd: Option<f64>,
}

impl Exit<'_> {
    /// The signal that ended the program. A box around it passes signal `n` on as code `128 + n`;
    /// only the signals of a crash or of an outside kill are read so, since programs use high
    /// codes of their own.
    #[must_use]
    pub fn killed_by(&self) -> Option<i32> {
        const KILLS: [i32; 9] = [4, 5, 6, 7, 8, 9, 11, 15, 31];
        self.signal.or_else(|| self.code.map(|code| code - 128).filter(|n| KILLS.contains(n)))
    }

    /// How the program ended, to follow its name in a sentence.
    pub(crate) fn ended(&self) -> String {
        match (self.killed_by(), self.code) {
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, Some(code)) => format!("exited with code {code}"),
            (None, None) => "ended without a code".to_owned(),
        }
    }
}

impl Verdict {
    /// A verdict with nothing but its reason.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            summary: None,
            error: None,
            hint: None,
            usage: LaneUsage::default(),
            note: None,
        }
    }
}
