//! The demo's lane: a program after the process ABI that makes one small, true change.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

/// The hidden first argument that turns relay into this program.
pub const DEMO_LANE: &str = "__demo-lane";

/// Reads one request line, adds a greeting to `greet.sh` in the work folder, answers.
#[must_use]
pub fn demo_lane_main() -> ExitCode {
    match answer() {
        Ok(line) => {
            // Without a reader there is nobody to answer.
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer() -> Result<Value, Box<dyn std::error::Error>> {
    let mut line = String::new();
    std::io::stdin().read_to_string(&mut line)?;
    let request: Value = serde_json::from_str(&line)?;
    let folder = request["task"]["workdir"].as_str().ok_or("no work folder")?;
    let script = Path::new(folder).join("greet.sh");
    let text = std::fs::read_to_string(&script)?;
    let changed = text.replace("echo \"Hello, world\"", "name=${1:-world}\necho \"Hello, $name\"");
    std::fs::write(&script, changed)?;
    Ok(json!({
        "schemaVersion": 1,
        "jobKey": request["jobKey"],
        "result": {
            "reply": "`greet.sh` greets whoever it is given as its first argument, and the world \
                      otherwise.",
            "usage": {"modelCalls": 0, "inputTokens": 0, "outputTokens": 0},
        },
    }))
}
