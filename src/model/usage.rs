//! What a run cost. "Not reported" is `None`, and `None` is never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most one run is believed to have cost, in US dollars: a hundred times what a day of an agent
/// at list price comes to. More is a broken report, and would use up a month's budget at once.
pub const COST_MOST: f64 = 10_000.0;

/// The highest count that is believed, 2^53: what every reader of JSON holds exactly (RFC 8259 §6).
pub const COUNT_MOST: u64 = 1 << 53;

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

    /// Whether the vendor answered in the run at least once: it used tokens, or a model was called.
    /// Who counts tokens counts a turn without an answer as well; of who does not, a turn is one.
    #[must_use]
    pub fn tells_of_an_answer(&self) -> bool {
        let Self { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, .. } = self;
        let tokens = [input_tokens, cache_read_tokens, cache_write_tokens, output_tokens];
        let is_some = |count: &Option<u64>| count.is_some_and(|n| n > 0);
        let counts_tokens = tokens.iter().any(|count| count.is_some());
        tokens.into_iter().any(is_some)
            || is_some(&self.model_calls)
            || !counts_tokens && is_some(&self.turns)
    }

    /// The number that nobody can have counted, by its name: below nothing, no number at all, or
    /// more than [`COST_MOST`] or [`COUNT_MOST`].
    #[must_use]
    pub fn nonsense(&self) -> Option<&'static str> {
        if self.cost_usd.is_some_and(|usd| !(0.0..=COST_MOST).contains(&usd)) {
            return Some("cost_usd");
        }
        let mut own = self.clone();
        let too_many = |(_, count): &(_, &mut Option<u64>)| count.is_some_and(|n| n > COUNT_MOST);
        own.counts().into_iter().find(too_many).map(|(name, _)| name)
    }

    /// The same without nonsense, so that what a lane reports never costs its result: what is no
    /// amount was not reported, and what is too much is the most.
    #[must_use]
    pub fn believable(mut self) -> Self {
        self.cost_usd = self.cost_usd.filter(|usd| *usd >= 0.0).map(|usd| usd.min(COST_MOST));
        for (_, count) in self.counts() {
            *count = count.map(|count| count.min(COUNT_MOST));
        }
        self
    }

    fn counts(&mut self) -> [(&'static str, &mut Option<u64>); 7] {
        [
            ("input_tokens", &mut self.input_tokens),
            ("cache_read_tokens", &mut self.cache_read_tokens),
            ("cache_write_tokens", &mut self.cache_write_tokens),
            ("output_tokens", &mut self.output_tokens),
            ("model_calls", &mut self.model_calls),
            ("turns", &mut self.turns),
            ("duration_ms", &mut self.duration_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(usd: f64) -> Usage {
        Usage { cost_usd: Some(usd), ..Usage::default() }
    }

    #[test]
    fn an_answer_is_known_by_what_it_used() {
        let none = Usage {
            input_tokens: Some(0),
            cache_read_tokens: Some(0),
            cache_write_tokens: Some(0),
            output_tokens: Some(0),
            model_calls: None,
            turns: Some(1),
            ..cost(0.0)
        };
        assert!(!none.tells_of_an_answer() && !Usage::default().tells_of_an_answer());
        for some in [
            Usage { input_tokens: Some(1), ..none.clone() },
            Usage { cache_read_tokens: Some(1), ..none.clone() },
            Usage { cache_write_tokens: Some(1), ..none.clone() },
            Usage { output_tokens: Some(1), ..none.clone() },
            Usage { model_calls: Some(1), ..none.clone() },
            Usage { turns: Some(1), ..Usage::default() },
        ] {
            assert!(some.tells_of_an_answer(), "{some:?}");
        }
    }

    #[test]
    fn what_nobody_can_have_counted_is_named_and_made_believable() {
        for (usd, becomes) in [
            (-0.01, None),
            (f64::NAN, None),
            (f64::NEG_INFINITY, None),
            (f64::INFINITY, Some(COST_MOST)),
            (1e308, Some(COST_MOST)),
        ] {
            assert_eq!(cost(usd).nonsense(), Some("cost_usd"), "{usd}");
            assert_eq!(cost(usd).believable().cost_usd, becomes, "{usd}");
        }
        for usd in [0.0, 12.5, COST_MOST] {
            assert_eq!(cost(usd).nonsense(), None);
            assert_eq!(cost(usd).believable(), cost(usd));
        }
        let many = Usage { turns: Some(u64::MAX), ..cost(1.0) };
        assert_eq!(many.nonsense(), Some("turns"));
        assert_eq!(many.believable(), Usage { turns: Some(COUNT_MOST), ..cost(1.0) });
        assert_eq!(Usage::default().nonsense(), None, "nothing was reported");
    }
}
