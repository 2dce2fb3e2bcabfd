//! When a usage limit ends, from the vendor's words: `try again at Nov 30th, 2026 12:53 AM.`, or on
//! the same day `try again at 12:53 PM.`. The times are UTC's (see [`super::ENV`]).

/// A day, in milliseconds.
const DAY: i64 = 24 * 3600 * 1000;
/// An end further off than this is not believed: two months.
const FAR: i64 = 62 * DAY;
/// A time that has just passed is the end of a limit, not tomorrow's.
const JUST_PASSED: i64 = 3600 * 1000;

const MONTHS: &str = "janfebmaraprmayjunjulaugsepoctnovdec";

/// The end in milliseconds since 1970, where it is told and believable at `now`.
pub fn quota_until(said: &str, now: i64) -> Option<i64> {
    let told = said.split_once("try again at ")?.1;
    let words: Vec<&str> = told
        .split([' ', ','])
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    let until = match words[..] {
        [clock, half, ..] if clock.contains(':') => {
            let midnight = now.saturating_sub(now.rem_euclid(DAY));
            let today = midnight.saturating_add(of_day(clock, half)?);
            let has_passed = today < now.saturating_sub(JUST_PASSED);
            if has_passed { today.saturating_add(DAY) } else { today }
        }
        [month, day, year, clock, half, ..] => date(month, day, year)? + of_day(clock, half)?,
        _ => return None,
    };
    (now..=now.saturating_add(FAR)).contains(&until).then_some(until)
}

fn of_day(clock: &str, half: &str) -> Option<i64> {
    let (hour, minute) = clock.split_once(':')?;
    let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
    let noon = match half.to_ascii_lowercase().as_str() {
        "am" => 0,
        "pm" => 12,
        _ => return None,
    };
    let sane = (1..=12).contains(&hour) && (0..60).contains(&minute);
    sane.then(|| ((hour % 12 + noon) * 60 + minute) * 60_000)
}

/// The beginning of a day: `Nov`, `30th`, `2026`.
fn date(month: &str, day: &str, year: &str) -> Option<i64> {
    let at = MONTHS.find(&month.get(..3)?.to_ascii_lowercase())?;
    let month = i64::try_from(at / 3).ok().filter(|_| at % 3 == 0)? + 1;
    let day: i64 = day.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
    let year: i64 = year.parse().ok()?;
    let sane = (1..=31).contains(&day) && (2000..=9999).contains(&year);
    sane.then(|| days_since_1970(year, month, day) * DAY)
}

/// Counts years from March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let of_year = (153 * month + 2) / 5 + day - 1;
    // The first of March of year 0 was 719,468 days before 1970.
    365 * year + leap_days + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-29 23:00 UTC.
    const NOW: i64 = 1_795_993_200_000;

    fn minutes_from_now(said: &str) -> Option<i64> {
        quota_until(said, NOW).map(|until| (until - NOW) / 60_000)
    }

    #[test]
    fn a_date_and_a_time_of_the_same_day() {
        let said = "You’ve hit your usage limit. Upgrade or try again at Nov 30th, 2026 12:53 AM.";
        assert_eq!(minutes_from_now(said), Some(60 + 53));
        assert_eq!(minutes_from_now("try again at 11:30 PM."), Some(30));
        assert_eq!(minutes_from_now("try again at 12:53 AM."), Some(60 + 53), "past midnight");
        assert_eq!(minutes_from_now("try again at Dec 1st, 2026 12:00 PM"), Some(37 * 60));
        assert_eq!(minutes_from_now("or try again at January 2nd, 2027 1:05 am."), Some(47_645));
    }

    #[test]
    fn what_is_no_time_or_not_believable_is_none() {
        for said in [
            "Try again later.",
            "try again at",
            "try again at noon today",
            "try again at 25:00 PM.",
            "try again at 11:30.",
            "try again at 10:00 PM.",
            "try again at Nov 28th, 2026 12:53 AM.",
            "try again at Nov 30th, 2036 12:53 AM.",
            "try again at Smarch 30th, 2026 12:53 AM.",
            "try again at éé 30th, 2026 12:53 AM.",
            "try again at Nov 99999999999999999999th, 2026 12:53 AM.",
        ] {
            assert_eq!(minutes_from_now(said), None, "{said}");
        }
    }

    /// A clock may say anything, and so may a transcript.
    #[test]
    fn any_now_is_counted_from() {
        for now in [i64::MIN, i64::MIN + 1, -1, i64::MAX - 1, i64::MAX] {
            for said in [
                "try again at 11:30 PM.",
                "try again at 12:00 AM.",
                "try again at Nov 30th, 2026 12:53 AM.",
            ] {
                let until = quota_until(said, now);
                assert!(until.is_none_or(|until| until >= now), "{said} at {now}: {until:?}");
            }
        }
    }

    #[test]
    fn days_are_counted_as_calendars_do() {
        for ((year, month, day), days) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 30), 20_787),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(year, month, day), days, "{year}-{month}-{day}");
        }
    }
}
