//! What a run cost.

use serde_json::Value;

use crate::LaneUsage;

/// Reads the row that ends a run. `modelUsage` counts the calls as well and is preferred. A cost is
/// there only where the server told one for every call; the program leaves it out otherwise.
pub fn usage(end: &Value) -> LaneUsage {
    let mut usage = by_model(&end["modelUsage"]).unwrap_or_else(|| one_call(&end["usage"]));
    usage.turns = end["num_turns"].as_u64();
    let whole = end["cost_is_partial"] != true && end["usage_is_incomplete"] != true;
    let cost = end["total_cost_usd"].as_f64().filter(|cost| cost.is_finite());
    usage.cost_usd = cost.filter(|_| whole);
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
        model_calls: sum("modelCalls"),
        ..LaneUsage::default()
    };
    (usage.input_tokens.is_some() || usage.output_tokens.is_some()).then_some(usage)
}

fn one_call(usage: &Value) -> LaneUsage {
    LaneUsage {
        input_tokens: usage["input_tokens"].as_u64(),
        cache_read_tokens: usage["cache_read_input_tokens"].as_u64(),
        cache_write_tokens: usage["cache_creation_input_tokens"].as_u64(),
        output_tokens: usage["output_tokens"].as_u64(),
        ..LaneUsage::default()
    }
}

/// Adds one answer's counts to those of the answers before it: all there is of a run that ended
/// before it could tell them together.
pub fn add(sum: &mut LaneUsage, call: &Value) {
    let call = one_call(call);
    let add = |sum: &mut Option<u64>, n: Option<u64>| {
        *sum = n.map(|n| sum.unwrap_or(0).saturating_add(n)).or(*sum);
    };
    add(&mut sum.input_tokens, call.input_tokens);
    add(&mut sum.cache_read_tokens, call.cache_read_tokens);
    add(&mut sum.cache_write_tokens, call.cache_write_tokens);
    add(&mut sum.output_tokens, call.output_tokens);
    add(&mut sum.model_calls, Some(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_models_together() {
        let end = json!({
            "num_turns": 7, "total_cost_usd": 0.25,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "modelUsage": {
                "small": {"inputTokens": 10, "outputTokens": 5, "modelCalls": 1},
                "large": {"inputTokens": 20, "outputTokens": 50, "cacheReadInputTokens": 2,
                    "cacheCreationInputTokens": 3, "modelCalls": 6},
            },
        });
        let expected = LaneUsage {
            model: Some("large".to_owned()),
            input_tokens: Some(30),
            cache_read_tokens: Some(2),
            cache_write_tokens: Some(3),
            output_tokens: Some(55),
            model_calls: Some(7),
            turns: Some(7),
            cost_usd: Some(0.25),
        };
        assert_eq!(usage(&end), expected);
    }

    #[test]
    fn not_reported_is_not_zero() {
        assert_eq!(usage(&json!({})), LaneUsage::default());
        let only = usage(&json!({"usage": {"input_tokens": 5}, "modelUsage": {}}));
        assert_eq!((only.input_tokens, only.output_tokens, only.cost_usd), (Some(5), None, None));
        for partial in ["cost_is_partial", "usage_is_incomplete"] {
            let end = json!({"total_cost_usd": 0.1, partial: true});
            assert_eq!(usage(&end).cost_usd, None, "{partial}");
        }
    }

    #[test]
    fn answers_add_up() {
        let mut sum = LaneUsage::default();
        add(&mut sum, &json!({"input_tokens": 700, "output_tokens": 50}));
        add(&mut sum, &json!({"input_tokens": 300, "cache_read_input_tokens": 9}));
        assert_eq!((sum.input_tokens, sum.output_tokens), (Some(1000), Some(50)));
        assert_eq!((sum.cache_read_tokens, sum.cache_write_tokens), (Some(9), None));
        assert_eq!((sum.model_calls, sum.cost_usd, sum.turns), (Some(2), None, None));
    }
}
