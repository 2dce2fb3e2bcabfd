//! What a run cost. "Not reported" is `None`, and `None` is never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens and money of one run, as the vendor's program reported them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
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
    /// Wall time of the lane, in milliseconds, as the worker measured it.
    pub duration_ms: Option<u64>,
}

impl Usage {
    /// Whether the program reported anything at all (the worker's own wall time does not count).
    #[must_use]
    pub fn is_reported(&self) -> bool {
        let Self {
            model: _,
            input_tokens,
            cache_read_tokens,
            cache_write_tokens,
            output_tokens,
            model_calls,
            turns,
            cost_usd,
            duration_ms: _,
        } = self;
        [input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, model_calls, turns]
            .iter()
            .any(|n| n.is_some())
            || cost_usd.is_some()
    }
}
