//! When a usage limit ends, from the vendor's words: `try again at Nov 30th, 2026 12:53 AM.`, or on
//! the same day `try again at 12:53 PM.`; of a rate limit `try again in 1m20.5s`. The times are UTC's
//! (see [`super::ENV`]).

use crate::calendar::{believable, date, next_at, of_day};

/// The end in milliseconds since 1970, where it is told and believable at `now`.
pub fn quota_until(said: &str, now: i64) -> Option<i64> {
    if let Some((_, told)) = said.split_once("try again in ") {
        return believable(now.saturating_add(span(told)?), now);
    }
    let told = said.split_once("try again at ")?.1;
    let words: Vec<&str> = told
        .split([' ', ','])
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    let until = match words[..] {
        [clock, half, ..] if clock.contains(':') => next_at(of_day(clock, half)?, now),
        [month, day, year, clock, half, ..] if clock.contains(':') => {
            date(month, day, year.parse().ok()?)? + of_day(clock, half)?
        }
        _ => return None,
    };
    believable(until, now)
}

/// How long `20s`, `1h2m3.5s`, `3 days, 20 minutes` or `2 hours and 5 minutes` is, in milliseconds,
/// up to the first word that is none of it.
fn span(told: &str) -> Option<i64> {
    let (mut left, mut ms) = (told, None::<f64>);
    loop {
        left = left.trim_start_matches([' ', ',']);
        left = left.strip_prefix("and ").unwrap_or(left);
        let digits = left.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &left[..left.len() - digits.len()];
        let word = digits.trim_start();
        let after = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let unit = unit(&word[..word.len() - after.len()]);
        let (Ok(number), Some(unit)) = (number.parse::<f64>(), unit) else {
            return ms.map(|ms| ms.ceil() as i64);
        };
        ms = Some(ms.unwrap_or_default() + number * unit);
        left = after;
    }
}

/// A unit of time, in milliseconds.
fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "ms" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1000.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
        "d" | "day" | "days" => 86_400_000.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::asked::{NOW, at_any_time, minutes_from_now, tells_none};

    #[test]
    fn a_date_and_a_time_of_the_same_day() {
        for (said, minutes) in [
            (
                "You’ve hit your usage limit. Upgrade or try again at Nov 30th, 2026 12:53 AM.",
                60 + 53,
            ),
            ("try again at 11:30 PM.", 30),
            // Past midnight.
            ("try again at 12:53 AM.", 60 + 53),
            ("try again at Dec 1st, 2026 12:00 PM", 37 * 60),
            ("or try again at January 2nd, 2027 1:05 am.", 47_645),
        ] {
            assert_eq!(minutes_from_now(quota_until, said), Some(minutes), "{said}");
        }
    }

    #[test]
    fn what_is_no_time_or_not_believable_is_none() {
        let none = [
            "Try again later.",
            "try again at",
            "try again at noon today",
            "try again at 25:00 PM.",
            "try again at 11:30.",
            "try again at 10:00 PM.",
            "try again at Nov 28th, 2026 12:53 AM.",
            "try again at Nov 30th, 2036 12:53 AM.",
            "try again at Smarch 30th, 2026 12:53 AM.",
            "try again in",
            "try again in a moment.",
            "try again in 20.",
            "try again in 20 parsecs",
            "try again in . s",
            "try again in 63 days",
            "try again in 99999999999999999999 days",
            "try again in 20é",
            "try again at éé 30th, 2026 12:53 AM.",
            "try again at Nov 99999999999999999999th, 2026 12:53 AM.",
        ];
        tells_none(quota_until, &none);
    }

    #[test]
    fn a_time_from_now() {
        for (said, seconds) in [
            ("Rate limit reached. Please try again in 20s.", 20),
            ("Please try again in 6m0s. Visit", 360),
            ("try again in 1h2m3.5s.", 3724),
            ("try again in 28ms.", 1),
            ("try again in 45 minutes", 45 * 60),
            ("try again in 3 days 20 minutes.", 3 * 86_400 + 20 * 60),
            ("try again in 2 hours, 1 minute and 5 seconds or upgrade", 2 * 3600 + 65),
            ("try again in 1 hour and then 5 minutes", 3600),
        ] {
            let until = quota_until(said, NOW).map(|until| (until - NOW + 999) / 1000);
            assert_eq!(until, Some(seconds), "{said}");
        }
    }

    #[test]
    fn any_now_is_counted_from() {
        let all = [
            "try again at 11:30 PM.",
            "try again at 12:00 AM.",
            "try again in 20s",
            "try again at Nov 30th, 2026 12:53 AM.",
        ];
        at_any_time(quota_until, &all);
    }
}
