//! Times and amounts as people read them.

use std::time::Duration;

use crate::model::Timestamp;

/// How long one program may take to answer, as an option gives it.
///
/// # Errors
/// What it has to be.
pub fn patience(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.1..=600.0).contains(&n) => Ok(Duration::from_secs_f64(n)),
        _ => Err("a number of seconds from 0.1 to 600".to_owned()),
    }
}

/// `2026-11-29 15:24:05 UTC`.
#[must_use]
pub fn date(at: Timestamp) -> String {
    let seconds = at.0.div_euclid(1000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (h, m, s) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02} UTC")
}

/// `14:05 UTC`, rounded up to the minute: for a time that is waited for.
#[must_use]
pub fn clock_time(at: Timestamp) -> String {
    let minutes = at.0.div_euclid(60_000) + i64::from(at.0.rem_euclid(60_000) > 0);
    format!("{:02}:{:02} UTC", minutes.div_euclid(60).rem_euclid(24), minutes.rem_euclid(60))
}

/// `until 14:05 UTC`, with its day where that is not within a day of `now`.
#[must_use]
pub fn until(now: Timestamp, at: Timestamp) -> String {
    if at.since(now) < Duration::from_secs(86_400) {
        return format!("until {}", clock_time(at));
    }
    let whole = date(at + Duration::from_millis(59_999));
    let day = whole.split(' ').next().unwrap_or_default();
    format!("until {day} {}", clock_time(at))
}

/// `just now` within a second either way, else `5m ago`, `in 5m`.
#[must_use]
pub fn ago(now: Timestamp, at: Timestamp) -> String {
    // Two clocks, or a time taken before the answer, differ by a little.
    if at.since(now) >= Duration::from_secs(1) {
        return format!("in {}", span(at.since(now)));
    }
    let silent = now.since(at);
    if silent < Duration::from_secs(1) {
        "just now".to_owned()
    } else {
        format!("{} ago", span(silent))
    }
}

/// `850ms`, `12s`, `5m 10s`, `3h 2m`, `4d 1h`: the two largest parts.
#[must_use]
pub fn span(time: Duration) -> String {
    let s = time.as_secs();
    let two = |large: u64, l: &str, small: u64, r: &str| {
        if small == 0 { format!("{large}{l}") } else { format!("{large}{l} {small}{r}") }
    };
    match s {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{s}s"),
        60..3600 => two(s / 60, "m", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s / 60 % 60, "m"),
        _ => two(s / 86_400, "d", s / 3600 % 24, "h"),
    }
}

/// Year, month and day of a number of days since 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_796_138_645_999, "2026-12-01 15:24:05 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(Timestamp(ms)), text);
        }
    }

    #[test]
    fn a_time_that_is_waited_for_has_its_day_where_that_is_another() {
        let now = Timestamp(1_796_138_645_000);
        let told = |hours: u64| until(now, now + Duration::from_secs(hours * 3600));
        assert_eq!(told(1), "until 16:25 UTC");
        assert_eq!(told(9), "until 00:25 UTC");
        assert_eq!(told(26), "until 2026-12-02 17:25 UTC");
    }

    #[test]
    fn spans_have_two_parts() {
        let of = |ms| span(Duration::from_millis(ms));
        assert_eq!([of(850), of(12_000), of(60_000)], ["850ms", "12s", "1m"]);
        assert_eq!([of(310_000), of(10_920_000), of(349_200_000)], ["5m 10s", "3h 2m", "4d 1h"]);
        assert_eq!(ago(Timestamp(10_000), Timestamp(10_500)), "just now");
        assert_eq!(ago(Timestamp(10_000), Timestamp(11_000)), "in 1s");
        assert_eq!(ago(Timestamp(310_000), Timestamp(0)), "5m 10s ago");
    }
}
