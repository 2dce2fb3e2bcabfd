//! What a run cost, from the row that ends its turn.

use serde_json::Value;

use crate::LaneUsage;

/// Reads the `usage` of a `turn.completed`. Its input counts what was read from the cache and
/// written to it as well; where it does not say how much that was, all of it counts as input.
/// There is no price in it, and a turn that failed has no usage.
pub fn usage(usage: &Value, model: Option<&str>) -> LaneUsage {
    let count = |key: &str| usage[key].as_u64();
    let (read, written) = (count("cached_input_tokens"), count("cache_write_input_tokens"));
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    LaneUsage {
        model: model.map(str::to_owned),
        input_tokens: count("input_tokens").map(|all| all.saturating_sub(cached)),
        cache_read_tokens: read,
        cache_write_tokens: written,
        output_tokens: count("output_tokens"),
        ..LaneUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cache_is_no_input() {
        let row = json!({
            "input_tokens": 2000, "cached_input_tokens": 600, "cache_write_input_tokens": 40,
            "output_tokens": 100, "reasoning_output_tokens": 14,
        });
        let expected = LaneUsage {
            model: Some("m".to_owned()),
            input_tokens: Some(1360),
            cache_read_tokens: Some(600),
            cache_write_tokens: Some(40),
            output_tokens: Some(100),
            ..LaneUsage::default()
        };
        assert_eq!(usage(&row, Some("m")), expected);
        assert_eq!(usage(&json!({"input_tokens": 5}), None).input_tokens, Some(5));
        let odd = json!({"input_tokens": 5, "cached_input_tokens": 9});
        assert_eq!(usage(&odd, None).input_tokens, Some(0), "more cached than read");
    }

    #[test]
    fn not_reported_is_not_zero() {
        assert_eq!(usage(&json!({}), None), LaneUsage::default());
        let nulls = json!({"input_tokens": null, "cached_input_tokens": null, "output_tokens": -1});
        assert_eq!(usage(&nulls, None), LaneUsage::default());
    }
}
