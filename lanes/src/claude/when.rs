//! When a limit ends, from the program's text: `resets 12:53am (UTC)`, more than a day ahead
//! `resets Dec 3, 9am (UTC)`, and with the year where it is another. The zone is the machine's, by
//! its name: only those that tell their distance from UTC are read.

use crate::calendar::{DAY, believable, date, next_at, of_day};

/// The end in milliseconds since 1970, where it is told and believable at `now`.
pub fn resets(said: &str, now: i64) -> Option<i64> {
    let (_, told) = said.split_once("resets ").or_else(|| said.split_once("reset at "))?;
    let (time, rest) = told.split_once('(')?;
    let ahead = ahead_of_utc(rest.split_once(')')?.0)?;
    let there = now.saturating_add(ahead);
    let words = time.split([' ', ',']).filter(|word| !word.is_empty() && *word != "at");
    let words: Vec<&str> = words.collect();
    let until = match words[..] {
        [clock] => next_at(time_of_day(clock)?, there),
        [month, day, clock] => {
            let clock = time_of_day(clock)?;
            let near = year_of(there);
            let years = near.saturating_sub(1)..=near.saturating_add(1);
            let of = |year| Some(date(month, day, year)?.saturating_add(clock));
            years.filter_map(of).find(|until| believable(*until, there).is_some())?
        }
        [month, day, year, clock] => {
            date(month, day, year.parse().ok()?)?.saturating_add(time_of_day(clock)?)
        }
        _ => return None,
    };
    believable(until.saturating_sub(ahead), now)
}

/// `12:53am`, `9pm`.
fn time_of_day(word: &str) -> Option<i64> {
    let halves = ["am", "pm"].into_iter();
    let (clock, half) = halves.filter_map(|half| Some((word.strip_suffix(half)?, half))).next()?;
    of_day(clock, half)
}

/// The year at `now`, in its first and last days maybe the one beside it.
fn year_of(now: i64) -> i64 {
    // The mean year of the calendar.
    1970_i64.saturating_add(now.div_euclid(DAY).saturating_mul(10_000) / 3_652_425)
}

/// How far a zone is ahead of UTC: `UTC`, `UTC+2`, `GMT-03:30`, and `Etc/GMT-2`, where the sign is
/// the other one.
fn ahead_of_utc(zone: &str) -> Option<i64> {
    let (zone, sign) = zone.strip_prefix("Etc/").map_or((zone, 1), |zone| (zone, -1));
    let names = ["UTC", "GMT", "UCT"].into_iter();
    let rest = names.filter_map(|name| zone.strip_prefix(name)).next()?;
    if rest.is_empty() {
        return Some(0);
    }
    let (sign, rest) = match rest.strip_prefix('-') {
        Some(rest) => (-sign, rest),
        None => (sign, rest.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let sane = hours <= 14 && minutes < 60;
    sane.then(|| sign * i64::from(hours * 60 + minutes) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::asked::{at_any_time, minutes_from_now, tells_none};

    #[test]
    fn a_time_of_day_a_date_and_a_date_of_another_year() {
        for (said, minutes) in [
            ("You've hit your 5-hour limit · resets 12:53am (UTC)", 113),
            ("You've hit your session limit · resets 11:30pm (UTC)", 30),
            ("You've hit your weekly limit · resets Dec 3, 9am (UTC)", 82 * 60),
            ("You've hit your weekly limit · resets Jan 3, 2027, 9:30am (UTC) · more", 49_590),
            ("resets Jan 3 at 9:30am (UTC)", 49_590),
            ("Claude usage limit reached. Your limit will reset at 3am (UTC).", 240),
        ] {
            assert_eq!(minutes_from_now(resets, said), Some(minutes), "{said}");
        }
    }

    #[test]
    fn a_zone_that_tells_its_distance_from_utc() {
        for (said, minutes) in [
            ("resets 1am (GMT)", 120),
            ("resets 1am (UTC+1)", 60),
            ("resets 1am (UTC-03:30)", 330),
            ("resets 1am (Etc/GMT-1)", 60),
            ("resets 1am (Etc/UTC)", 120),
            ("resets Dec 1, 1am (UTC+1)", 25 * 60),
        ] {
            assert_eq!(minutes_from_now(resets, said), Some(minutes), "{said}");
        }
    }

    #[test]
    fn what_is_no_time_or_not_believable_is_none() {
        let none = [
            "You've hit your limit",
            "resets",
            "resets soon (UTC)",
            "resets 1am",
            "resets 1am (",
            "resets 1am (Europe/Berlin)",
            "resets Dec 3, 9am (Europe/Berlin)",
            "resets 1am (UTC+25)",
            "resets 1am (UTC+)",
            "resets 1am (UTC2)",
            "resets 13am (UTC)",
            "resets 1:60am (UTC)",
            "resets 1 (UTC)",
            "resets 10:30pm (UTC)",
            "resets Nov 20, 9am (UTC)",
            "resets Nov 20, 2036, 9am (UTC)",
            "resets Smarch 3, 9am (UTC)",
            "resets éé 3, 9am (UTC)",
            "resets Dec 3, 99999999999999999999, 9am (UTC)",
        ];
        tells_none(resets, &none);
    }

    #[test]
    fn any_now_is_counted_from() {
        let all = [
            "resets 12am (UTC+14)",
            "resets 11:30pm (UTC-14)",
            "resets Dec 3, 9am (UTC-14)",
            "resets Dec 3, 2026, 9am (UTC+14)",
        ];
        at_any_time(resets, &all);
    }
}
