//! Settings kept on the site; the narrowest scope wins.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Cents, IdError, Label, LaneName, ModelName, RepoName};

/// The longest time limit of a run, in minutes: a week.
pub const MAX_MINUTES: u32 = 7 * 24 * 60;

/// The most turns a run can be given. A run of 40, the default, is a long one.
pub const MAX_TURNS: u32 = 1_000;

/// What can be preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PreferenceKey {
    /// Comma-separated labels that a worker must have.
    #[serde(rename = "lane.labels")]
    LaneLabels,
    /// The model a vendor's lane is asked for.
    #[serde(rename = "lane.model")]
    LaneModel,
    /// The time limit of a run, in minutes.
    #[serde(rename = "run.max_minutes")]
    RunMaxMinutes,
    /// The most turns a vendor's agent takes in a run.
    #[serde(rename = "run.max_turns")]
    RunMaxTurns,
    /// What runs may cost in a day, in US dollars. Every budget that covers a task holds for it.
    #[serde(rename = "budget.usd_day")]
    BudgetUsdDay,
    /// Whether work that changes workflow files is pushed: `allow` or `refuse`.
    #[serde(rename = "push.workflows")]
    PushWorkflows,
}

impl PreferenceKey {
    /// Every key, in the order in which people are told of them.
    pub const ALL: [Self; 6] = [
        Self::LaneLabels,
        Self::LaneModel,
        Self::RunMaxMinutes,
        Self::RunMaxTurns,
        Self::BudgetUsdDay,
        Self::PushWorkflows,
    ];

    /// The word typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LaneLabels => "lane.labels",
            Self::LaneModel => "lane.model",
            Self::RunMaxMinutes => "run.max_minutes",
            Self::RunMaxTurns => "run.max_turns",
            Self::BudgetUsdDay => "budget.usd_day",
            Self::PushWorkflows => "push.workflows",
        }
    }

    /// The value as it is kept, where it is one of this key's type.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(self, value: &str) -> Result<String, IdError> {
        let value = value.trim();
        let bad = |expected| IdError { text: value.chars().take(80).collect(), expected };
        match self {
            Self::LaneLabels => {
                let labels = labels(value)?;
                Ok(labels.iter().map(Label::as_str).collect::<Vec<_>>().join(","))
            }
            Self::LaneModel => value.parse::<ModelName>().map(String::from),
            Self::RunMaxMinutes => {
                whole(value, MAX_MINUTES).ok_or_else(|| bad("a number of minutes (1 to 10080)"))
            }
            Self::RunMaxTurns => {
                whole(value, MAX_TURNS).ok_or_else(|| bad("a number of turns (1 to 1000)"))
            }
            Self::BudgetUsdDay => value.parse::<Cents>().map(String::from),
            Self::PushWorkflows => match value {
                "allow" | "refuse" => Ok(value.to_owned()),
                _ => Err(bad("one of allow, refuse")),
            },
        }
    }
}

/// The labels of a comma-separated list; there may be none.
///
/// # Errors
/// When one of them is no label.
pub fn labels(value: &str) -> Result<Vec<Label>, IdError> {
    value.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect()
}

/// A whole number from 1 to `most`, in plain digits and as short as it can be.
fn whole(value: &str, most: u32) -> Option<String> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let number: u32 = value.parse().ok().filter(|_| digits)?;
    (1..=most).contains(&number).then(|| number.to_string())
}

impl std::str::FromStr for PreferenceKey {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::ALL.into_iter().find(|key| key.as_str() == text).ok_or_else(|| IdError {
            text: text.chars().take(80).collect(),
            expected: "a preference key (`lane.labels`, `lane.model`, `run.max_minutes`, \
                       `run.max_turns`, `budget.usd_day`, `push.workflows`)",
        })
    }
}

/// What the preferences say of one run, each by the narrowest scope. `None` where they say nothing:
/// then, and where a flag or the environment of the worker says otherwise, the worker decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunPreferences {
    /// The model.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "Option<ModelName>")]
    pub model: Option<ModelName>,
    /// The time limit, in minutes.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "Option<u32>")]
    pub max_minutes: Option<u32>,
    /// The most turns of the agent.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "Option<u32>")]
    pub max_turns: Option<u32>,
}

/// A value of a newer site that this version does not know is as good as none: no claim is lost
/// over it.
fn known<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// For whom a preference holds. Narrower beats wider, in the order of [`Scope::rank`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "scope", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// One lane, in every project.
    Lane {
        /// The lane.
        lane: LaneName,
    },
    /// One project, every lane.
    Project {
        /// The project.
        slug: RepoName,
    },
    /// One lane of one project.
    ProjectLane {
        /// The project.
        slug: RepoName,
        /// The lane.
        lane: LaneName,
    },
}

impl Scope {
    /// Higher wins: project and lane, then project, then lane, then global (DESIGN §4).
    #[must_use]
    pub const fn rank(&self) -> u8 {
        match self {
            Self::Global => 0,
            Self::Lane { .. } => 1,
            Self::Project { .. } => 2,
            Self::ProjectLane { .. } => 3,
        }
    }

    /// Whether it holds for a task of `lane` in `slug`.
    #[must_use]
    pub fn covers(&self, of_slug: &RepoName, of_lane: &LaneName) -> bool {
        match self {
            Self::Global => true,
            Self::Lane { lane } => lane == of_lane,
            Self::Project { slug } => slug == of_slug,
            Self::ProjectLane { slug, lane } => slug == of_slug && lane == of_lane,
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// What.
    pub key: PreferenceKey,
    /// For whom.
    pub scope: Scope,
    /// The value; checked by the queue for its key.
    pub value: String,
}

impl Preference {
    /// The narrowest of `all` with `key` that covers a task.
    #[must_use]
    pub fn narrowest<'a>(
        all: &'a [Self],
        key: PreferenceKey,
        slug: &RepoName,
        lane: &LaneName,
    ) -> Option<&'a Self> {
        all.iter()
            .filter(|p| p.key == key && p.scope.covers(slug, lane))
            .max_by_key(|p| p.scope.rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_by_their_keys_type() {
        use PreferenceKey as Key;
        for (key, value, kept) in [
            (Key::LaneLabels, " gpu, xcode,", "gpu,xcode"),
            (Key::LaneLabels, "", ""),
            (Key::LaneModel, "opus[1m]", "opus[1m]"),
            (Key::RunMaxMinutes, "1", "1"),
            (Key::RunMaxMinutes, "10080", "10080"),
            (Key::RunMaxTurns, "0007", "7"),
            (Key::BudgetUsdDay, "12.5", "12.50"),
            (Key::BudgetUsdDay, "0", "0.00"),
            (Key::PushWorkflows, "allow", "allow"),
        ] {
            assert_eq!(key.check(value).as_deref(), Ok(kept));
        }
        for (key, value) in [
            (Key::LaneLabels, "a b"),
            (Key::LaneModel, "--dangerously-skip-permissions"),
            (Key::LaneModel, ""),
            (Key::RunMaxMinutes, "0"),
            (Key::RunMaxMinutes, "10081"),
            (Key::RunMaxMinutes, "1.5"),
            (Key::RunMaxMinutes, "+5"),
            (Key::RunMaxMinutes, "99999999999"),
            (Key::RunMaxTurns, "1001"),
            (Key::RunMaxTurns, "-1"),
            (Key::BudgetUsdDay, "-1"),
            (Key::BudgetUsdDay, "1e9"),
            (Key::BudgetUsdDay, "NaN"),
            (Key::PushWorkflows, "yes"),
        ] {
            assert!(key.check(value).is_err(), "{} took {value}", key.as_str());
        }
    }

    #[test]
    fn what_a_newer_site_says_of_a_run_is_read_as_far_as_it_is_known() {
        let said = r#"{"model":"--flag","max_minutes":"soon","max_turns":7,"colour":"blue"}"#;
        let read: RunPreferences = serde_json::from_str(said).unwrap();
        assert_eq!(read, RunPreferences { max_turns: Some(7), ..RunPreferences::default() });
        let none: RunPreferences = serde_json::from_str("{}").unwrap();
        assert_eq!(none, RunPreferences::default());
    }

    #[test]
    fn the_narrowest_scope_wins() -> Result<(), IdError> {
        let slug: RepoName = "acme/shop".parse()?;
        let lane: LaneName = "claude".parse()?;
        let at = |scope: Scope, value: &str| Preference {
            key: PreferenceKey::LaneLabels,
            scope,
            value: value.to_owned(),
        };
        let mut all = vec![
            at(Scope::Global, "global"),
            at(Scope::ProjectLane { slug: slug.clone(), lane: lane.clone() }, "both"),
            at(Scope::Lane { lane: lane.clone() }, "lane"),
            at(Scope::Project { slug: slug.clone() }, "project"),
            at(Scope::Project { slug: "acme/other".parse()? }, "another project"),
        ];
        for expected in ["both", "project", "lane", "global"] {
            let found = Preference::narrowest(&all, PreferenceKey::LaneLabels, &slug, &lane);
            assert_eq!(found.map(|p| p.value.as_str()), Some(expected));
            all.retain(|p| p.value != expected);
        }
        Ok(())
    }
}
