//! Times in a vendor's words: a time of day, a date, a number of days. Counted in milliseconds, of
//! UTC unless said otherwise.

/// A day, in milliseconds.
pub const DAY: i64 = 24 * 3600 * 1000;
/// The end of a limit further off than this is not believed: two months.
pub const FAR: i64 = 62 * DAY;
/// A time that has just passed is the end of a limit, not tomorrow's nor next year's.
pub const JUST_PASSED: i64 = 3600 * 1000;

const MONTHS: &str = "janfebmaraprmayjunjulaugsepoctnovdec";

/// `until`, where it is to come and believable at `now`.
pub fn believable(until: i64, now: i64) -> Option<i64> {
    (now..=now.saturating_add(FAR)).contains(&until).then_some(until)
}

/// The time since midnight: `12:53` or `9`, and `am` or `pm`.
pub fn of_day(clock: &str, half: &str) -> Option<i64> {
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "0"));
    let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
    let noon = match half.to_ascii_lowercase().as_str() {
        "am" => 0,
        "pm" => 12,
        _ => return None,
    };
    let sane = (1..=12).contains(&hour) && (0..60).contains(&minute);
    sane.then(|| ((hour % 12 + noon) * 60 + minute) * 60_000)
}

/// The next time at which it is `of_day`, or the one that has just passed.
pub fn next_at(of_day: i64, now: i64) -> i64 {
    let midnight = now.saturating_sub(now.rem_euclid(DAY));
    let today = midnight.saturating_add(of_day);
    let has_passed = today < now.saturating_sub(JUST_PASSED);
    if has_passed { today.saturating_add(DAY) } else { today }
}

/// The beginning of a day: `Nov`, `30th`, 2026.
pub fn date(month: &str, day: &str, year: i64) -> Option<i64> {
    let at = MONTHS.find(&month.get(..3)?.to_ascii_lowercase())?;
    let month = i64::try_from(at / 3).ok().filter(|_| at % 3 == 0)? + 1;
    let day: i64 = day.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()?;
    let sane = (1..=31).contains(&day) && (1970..=9999).contains(&year);
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

/// What is asked of whoever reads a vendor's words of when a limit ends.
#[cfg(test)]
pub(crate) mod asked {
    /// 2026-11-29 23:00 UTC.
    pub const NOW: i64 = 1_795_993_200_000;

    /// The end by what was said, at a time.
    pub type Reads = fn(&str, i64) -> Option<i64>;

    /// The end in minutes from [`NOW`].
    pub fn minutes_from_now(reads: Reads, said: &str) -> Option<i64> {
        reads(said, NOW).map(|until| (until - NOW) / 60_000)
    }

    /// None of this tells an end.
    pub fn tells_none(reads: Reads, all: &[&str]) {
        for said in all {
            assert_eq!(minutes_from_now(reads, said), None, "{said}");
        }
    }

    /// A clock may say anything, and so may a transcript: an end is never before it.
    pub fn at_any_time(reads: Reads, all: &[&str]) {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            for said in all {
                let until = reads(said, now);
                assert!(until.is_none_or(|until| until >= now), "{said} at {now}: {until:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
