//! Settings kept on the site; the narrowest scope wins.

use serde::{Deserialize, Serialize};

use super::{IdError, LaneName, RepoName};

/// What can be preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PreferenceKey {
    /// Comma-separated labels that a worker must have.
    #[serde(rename = "lane.labels")]
    LaneLabels,
    /// Whether work that changes workflow files is pushed: `allow` or `refuse`.
    #[serde(rename = "push.workflows")]
    PushWorkflows,
}

impl PreferenceKey {
    /// The word typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LaneLabels => "lane.labels",
            Self::PushWorkflows => "push.workflows",
        }
    }
}

impl std::str::FromStr for PreferenceKey {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text {
            "lane.labels" => Ok(Self::LaneLabels),
            "push.workflows" => Ok(Self::PushWorkflows),
            _ => Err(IdError {
                text: text.chars().take(80).collect(),
                expected: "a preference key (`lane.labels`, `push.workflows`)",
            }),
        }
    }
}

/// For whom a preference holds. Narrower beats wider, in the order of [`Scope::rank`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
