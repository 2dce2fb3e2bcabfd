//! GitHub's times (`2026-11-29T15:04:05Z`) as [`Timestamp`].

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::model::Timestamp;

/// Reads an RFC 3339 time in UTC, to the millisecond.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 || !fraction.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // Days since 1970 in the proleptic Gregorian calendar, with years that begin in March.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(Timestamp(seconds * 1000 + millis))
}

fn numbers(text: &str, sign: char) -> Option<[i64; 3]> {
    let mut parts = text.split(sign).map(|part| {
        let digits =
            !part.is_empty() && part.len() <= 4 && part.chars().all(|c| c.is_ascii_digit());
        if digits { part.parse().ok() } else { None }
    });
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

/// For `#[serde(with = "time")]`: text from a forge, milliseconds in the cache.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Millis(i64),
    }
    match Either::deserialize(from)? {
        Either::Text(text) => parse(&text).ok_or_else(|| D::Error::custom("no time in UTC")),
        Either::Millis(at) => Ok(Timestamp(at)),
    }
}

pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-29T15:04:05Z", 1_795_964_645),
        ] {
            assert_eq!(parse(text), Some(Timestamp(seconds * 1000)), "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:01.5+00:00"), Some(Timestamp(1500)));
        for text in
            ["", "2026-11-29", "2026-13-01T00:00:00Z", "2026-11-29T15:04:05+01:00", "x-y-zTa:b:cZ"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
