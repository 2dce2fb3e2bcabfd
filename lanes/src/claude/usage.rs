//! What a run cost, from its result row.

use serde_json::Value;

use crate::LaneUsage;

/// Reads a result row. `modelUsage` counts subagents too, `usage` only the main loop, so the first
/// is preferred; rows before the result hold no usable counts.
pub fn usage(result: &Value) -> LaneUsage {
    let mut usage = by_model(&result["modelUsage"]).unwrap_or_else(|| main_loop(&result["usage"]));
    usage.turns = result["num_turns"].as_u64();
    usage.cost_usd = result["total_cost_usd"].as_f64().filter(|cost| cost.is_finite());
    usage
}

fn by_model(models: &Value) -> Option<LaneUsage> {
    let models = models.as_object()?;
    let sum = |key: &str| {
        models.values().filter_map(|model| model[key].as_u64()).reduce(u64::saturating_add)
    };
    let most = models.iter().max_by_key(|(_, model)| model["outputTokens"].as_u64())?;
    let usage = LaneUsage {
        model: Some(most.0.clone()),
        input_tokens: sum("inputTokens"),
        cache_read_tokens: sum("cacheReadInputTokens"),
        cache_write_tokens: sum("cacheCreationInputTokens"),
        output_tokens: sum("outputTokens"),
        ..LaneUsage::default()
    };
    (usage.input_tokens.is_some() || usage.output_tokens.is_some()).then_some(usage)
}

fn main_loop(usage: &Value) -> LaneUsage {
    LaneUsage {
        input_tokens: usage["input_tokens"].as_u64(),
        cache_read_tokens: usage["cache_read_input_tokens"].as_u64(),
        cache_write_tokens: usage["cache_creation_input_tokens"].as_u64(),
        output_tokens: usage["output_tokens"].as_u64(),
        ..LaneUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_models_together() {
        let result = json!({
            "num_turns": 7, "total_cost_usd": 0.25,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "modelUsage": {
                "small": {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 2},
                "large": {"inputTokens": 20, "outputTokens": 50, "cacheCreationInputTokens": 3},
            },
        });
        assert_eq!(
            usage(&result),
            LaneUsage {
                model: Some("large".to_owned()),
                input_tokens: Some(30),
                cache_read_tokens: Some(2),
                cache_write_tokens: Some(3),
                output_tokens: Some(55),
                model_calls: None,
                turns: Some(7),
                cost_usd: Some(0.25),
            }
        );
    }

    #[test]
    fn the_main_loop_where_models_are_not_told() {
        let counts = json!({
            "input_tokens": 2000, "cache_creation_input_tokens": 40,
            "cache_read_input_tokens": 600, "output_tokens": 100,
        });
        for models in [json!({}), json!(null), json!([]), json!({"m": {}})] {
            let read = usage(&json!({"usage": counts, "modelUsage": models}));
            assert_eq!((read.input_tokens, read.output_tokens), (Some(2000), Some(100)));
            assert_eq!((read.cache_read_tokens, read.cache_write_tokens), (Some(600), Some(40)));
        }
    }

    #[test]
    fn not_reported_is_not_zero() {
        assert_eq!(usage(&json!({})), LaneUsage::default());
        let nulls = json!({"usage": {"input_tokens": null, "output_tokens": "x"}, "num_turns": -1,
            "total_cost_usd": null, "modelUsage": null});
        assert_eq!(usage(&nulls), LaneUsage::default());
    }
}
