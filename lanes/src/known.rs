//! What is known of single versions of the vendors' programs: one closed table. A row names what
//! the version does, and where that was seen.

/// The parts of a version that are compared.
pub type Number = [u32; 3];

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The versions it is of.
    pub of: Span,
    /// What follows from it.
    pub weight: Weight,
    /// What they do, for a person.
    pub what: &'static str,
    /// Where it was seen.
    pub source: &'static str,
}

/// What follows from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The lane is not served.
    Bad,
    /// The lane is served, and the row is told.
    Changed,
}

/// Versions from one to another, both among them. What comes before a version (`-alpha.2`) counts as
/// that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: Number,
    /// The last.
    pub last: Number,
}

impl Span {
    const fn of(version: Number) -> Self {
        Self { first: version, last: version }
    }

    /// All before one that is the first of a minor version.
    const fn before([major, minor, _]: Number) -> Self {
        Self { first: [0, 0, 0], last: [major, minor - 1, u32::MAX] }
    }

    /// Whether a version is among them.
    #[must_use]
    pub fn holds(&self, version: Number) -> bool {
        self.first <= version && version <= self.last
    }
}

pub(crate) const CLAUDE: &[Known] = &[Known {
    of: Span::of([2, 1, 197]),
    weight: Weight::Changed,
    what: "this is what npm installs by itself where Node.js is older than 22, 135 versions behind; \
           npm install -g @anthropic-ai/claude-code@2.1.332 runs there too",
    source: "installed and run on 2026-11-29 and 30 (2.1.197 and 2.1.332 under Node.js 20): it does \
             its tasks, and names no reason (startup_failure_reason) where its sandbox is missing",
}];

pub(crate) const CODEX: &[Known] = &[Known {
    of: Span::before([0, 145, 0]),
    weight: Weight::Bad,
    what: "it ends before every run, for it does not know a setting that keeps other agents out of \
           one (agents.enabled)",
    source: "run on 2026-11-30: 0.140.0, 0.144.5 and 0.144.6 end with code 1 and `invalid type: \
             boolean`; 0.145.0, 0.146.0, 0.149.0 and 0.153.0 begin, and 0.145.0 and 0.171.0 do all \
             that the tests with the real program ask",
}];

/// 1.0.5, the other version that there is, was run on 2026-11-30 and does as 1.0.41.
pub(crate) const GROK: &[Known] = &[];

/// The number in a version such as `2.1.332` or `0.172.0-alpha.2`.
pub(crate) fn number(version: &str) -> Option<Number> {
    let plain = version.split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VENDORS, claude, codex, grok};

    #[test]
    fn every_row_is_of_the_versions_it_was_seen_with() {
        let of = |vendor: &crate::Vendor, version: &str| -> Vec<Weight> {
            vendor.known_of(version).map(|known| known.weight).collect()
        };
        for bad in ["0.110.0", "0.140.0", "0.144.5", "0.144.6", "0.144.7-alpha.1"] {
            assert_eq!(of(&codex::VENDOR, bad), [Weight::Bad], "{bad}");
        }
        for good in ["0.145.0", "0.146.0", "0.149.0", "0.153.0", "0.171.0", "1.0.0"] {
            assert_eq!(of(&codex::VENDOR, good), [], "{good}");
        }
        assert_eq!(of(&claude::VENDOR, "2.1.197"), [Weight::Changed]);
        for version in ["2.1.196", "2.1.198", "2.1.332"] {
            assert_eq!(of(&claude::VENDOR, version), [], "{version}");
        }
        for version in ["1.0.5", "1.0.41"] {
            assert_eq!(of(&grok::VENDOR, version), [], "{version}");
        }
        let rows: usize = VENDORS.iter().map(|vendor| vendor.known.len()).sum();
        assert_eq!(rows, 2, "a new row is tested above");
    }

    #[test]
    fn a_row_says_what_and_where_from_and_never_the_version_that_was_measured() {
        for vendor in VENDORS {
            assert_eq!(vendor.known_of(vendor.measured).count(), 0, "{}", vendor.lane);
            assert!(number(vendor.measured).is_some());
            for known in vendor.known {
                assert!(known.of.first <= known.of.last, "{known:?}");
                assert!(!known.what.is_empty() && known.source.contains("2026-"), "{known:?}");
            }
        }
    }

    #[test]
    fn what_is_no_version_has_no_row() {
        assert_eq!(number("2.1.332"), Some([2, 1, 332]));
        assert_eq!(number("0.172.0-alpha.2"), Some([0, 172, 0]));
        for text in ["", "2.1", "2.1.3.4", "one.two.three", "2.1.x", "99999999999.0.0"] {
            assert_eq!(number(text), None, "{text}");
            assert_eq!(codex::VENDOR.known_of(text).count(), 0);
        }
    }
}
