//! relay as a peer of the queue benchmark (bench/README.md): one scenario a call, one line of JSON.
//! It starts the real `relay serve` and speaks to it as workers on other machines do: over TCP, each
//! with a token of its own, on connections that stay open.

#![expect(clippy::print_stdout, reason = "it is a program of its own")]
#![expect(clippy::disallowed_methods, reason = "it is a program of its own")]

mod held;
mod line;
mod queue;
mod site;

use anyhow::{Context as _, bail};
use serde_json::json;

fn main() -> anyhow::Result<()> {
    let scenario = std::env::args().nth(1).context("usage: peer SCENARIO")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        Ok(match scenario.as_str() {
            "meta" => json!({ "version": relay::client::VERSION }),
            "enqueue" => queue::enqueue().await?,
            "drain" => queue::drain().await?,
            "latency" => queue::latency().await?,
            "held" => held::held().await?,
            "doorbell" => held::doorbell().await?,
            "hello" => held::hello().await?,
            other => bail!("there is no scenario `{other}`"),
        })
    })?;
    println!("{answer}");
    Ok(())
}

/// A number from the environment, as the harness gives it.
fn number(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}
