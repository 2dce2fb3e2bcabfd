//! Money as whole cents: what a person writes is compared with what was written.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IdError;

/// The most dollars that can be written.
const DOLLARS_MOST: u64 = 999_999;

/// US dollars and cents, never negative. Written `12.50`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Cents(u64);

impl Cents {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// The whole cents nearest to `usd` dollars.
    #[must_use]
    pub fn near(usd: f64) -> Self {
        let most = (DOLLARS_MOST * 100 + 99) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between nothing and the most"
        )]
        let cents = (usd * 100.0).round().clamp(0.0, most) as u64;
        Self(cents)
    }

    /// Whether `usd` dollars, a sum of what runs reported, use this up. A sum of fractions may fall
    /// short of what it stands for by a tiny part of a cent.
    #[must_use]
    pub fn is_used_up_by(self, usd: f64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a million dollars in cents is exact")]
        let cents = self.0 as f64;
        usd * 100.0 + 1e-6 >= cents
    }
}

impl FromStr for Cents {
    type Err = IdError;

    /// Reads digits, and after a point one or two more: no sign, no exponent, no `NaN`.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError {
            text: text.chars().take(80).collect(),
            expected: "an amount of US dollars (`12.50`, at most 999999.99)",
        };
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let (dollars, cents) = text.split_once('.').unwrap_or((text, "00"));
        if dollars.is_empty()
            || !(1..=2).contains(&cents.len())
            || !digits(dollars)
            || !digits(cents)
        {
            return Err(bad());
        }
        let dollars: u64 = dollars.parse().map_err(|_| bad())?;
        let tens = if cents.len() == 1 { 10 } else { 1 };
        let cents: u64 = cents.parse().map_err(|_| bad())?;
        if dollars > DOLLARS_MOST {
            return Err(bad());
        }
        Ok(Self(dollars * 100 + cents * tens))
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl TryFrom<String> for Cents {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<Cents> for String {
    fn from(cents: Cents) -> Self {
        cents.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_and_cents_are_read_and_nothing_else() {
        let read = |text: &str| text.parse::<Cents>().map(|c| c.to_string()).ok();
        for (text, kept) in
            [("0", "0.00"), ("5", "5.00"), ("5.5", "5.50"), ("0.05", "0.05"), ("007.10", "7.10")]
        {
            assert_eq!(read(text).as_deref(), Some(kept), "{text}");
        }
        for text in [
            "",
            ".",
            ".5",
            "5.",
            "5.505",
            "-1",
            "+1",
            "1e3",
            "1E3",
            "NaN",
            "inf",
            "0x10",
            "1,000",
            "$5",
            " 5",
            "1_000",
            "1000000",
            "99999999999999999999",
            "٥",
            "1.2.3",
        ] {
            assert_eq!(read(text), None, "{text} was taken");
        }
    }

    #[test]
    fn a_sum_of_fractions_uses_up_what_it_stands_for() {
        let limit: Cents = "0.30".parse().unwrap();
        assert!(limit.is_used_up_by([0.1; 3].iter().sum()));
        assert!("0.80".parse::<Cents>().unwrap().is_used_up_by([0.1; 8].iter().sum()));
        assert!(!limit.is_used_up_by(0.299_99));
        assert!(Cents::ZERO.is_used_up_by(0.0));
    }
}
