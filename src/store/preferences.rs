//! Preferences, and the labels of `lane.labels` taken apart for the claim.

use std::fmt::Write as _;

use sqlx::any::AnyRow;

use super::{Fields, Sql, Store, StoreError};
use crate::model::{
    Actor, Label, LaneName, Preference, PreferenceKey, RepoName, RunPreferences, Scope, Timestamp,
};

/// The columns that tell what the preferences say of a run of a task, from `tasks`.
macro_rules! run_preferences {
    () => {
        concat!(
            run_preferences!("lane.model"),
            " as prefer_model, ",
            run_preferences!("run.max_minutes"),
            " as prefer_minutes, ",
            run_preferences!("run.max_turns"),
            " as prefer_turns"
        )
    };
    ($key:literal) => {
        concat!(
            "(select n.value from preferences n where n.key = '",
            $key,
            "' and n.slug in ('', tasks.slug) and n.lane in ('', tasks.lane) \
             order by n.rank desc limit 1)"
        )
    };
}
pub(super) use run_preferences;

impl Store {
    /// Sets a preference; `labels` is its value taken apart.
    pub async fn prefer(
        &self,
        preference: &Preference,
        labels: &[Label],
        by: &Actor,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (slug, lane) = columns(&preference.scope);
        let mut text = String::from(
            "insert into preferences (key, slug, lane, rank, value, set_by, set_at)
                values ($1, $2, $3, $4, $5, $6, $7)
                on conflict (key, slug, lane) do update set value = excluded.value,
                    set_by = excluded.set_by, set_at = excluded.set_at;
            delete from preference_labels where slug = $2 and lane = $3 and $1 = 'lane.labels';",
        );
        for i in 0..labels.len() {
            let _ = write!(
                text,
                "insert into preference_labels (slug, lane, rank, label)
                values ($2, $3, $4, ${}) on conflict do nothing;",
                8 + i
            );
        }
        let mut sql = Sql::made(text)
            .bind(preference.key.as_str())
            .bind(slug)
            .bind(lane)
            .bind(i64::from(preference.scope.rank()))
            .bind(preference.value.clone())
            .bind(by.0.clone())
            .bind(now.0);
        for label in labels {
            sql = sql.bind(label.to_string());
        }
        self.write(sql).await.map(|_| ())
    }

    /// Takes a preference away. False where there was none.
    pub async fn unprefer(&self, key: PreferenceKey, scope: &Scope) -> Result<bool, StoreError> {
        let (slug, lane) = columns(scope);
        let sql = Sql::new(
            "delete from preference_labels where slug = $2 and lane = $3 and $1 = 'lane.labels';
            delete from preferences where key = $1 and slug = $2 and lane = $3
            returning key",
        )
        .bind(key.as_str())
        .bind(slug)
        .bind(lane);
        Ok(!self.write(sql).await?.is_empty())
    }

    /// All preferences, the widest first.
    pub async fn preferences(&self) -> Result<Vec<Preference>, StoreError> {
        let sql = Sql::new(
            "select key, slug, lane, value from preferences order by rank, slug, lane, key",
        );
        let rows = self.read(sql).await?;
        let preference = |row: &AnyRow| {
            let row = self.fields(row);
            let (key, scope) = (row.parsed("key")?, row.scope()?);
            Ok(Preference { key, scope, value: row.text("value")? })
        };
        rows.iter().map(preference).collect()
    }
}

impl Fields<'_> {
    /// A scope, from the columns `slug` and `lane`.
    pub(super) fn scope(&self) -> Result<Scope, StoreError> {
        let slug: Option<RepoName> =
            if self.text("slug")?.is_empty() { None } else { Some(self.parsed("slug")?) };
        let lane: Option<LaneName> =
            if self.text("lane")?.is_empty() { None } else { Some(self.parsed("lane")?) };
        Ok(match (slug, lane) {
            (None, None) => Scope::Global,
            (None, Some(lane)) => Scope::Lane { lane },
            (Some(slug), None) => Scope::Project { slug },
            (Some(slug), Some(lane)) => Scope::ProjectLane { slug, lane },
        })
    }

    /// What the columns of `run_preferences!` say.
    pub(super) fn run_preferences(&self) -> Result<RunPreferences, StoreError> {
        Ok(RunPreferences {
            model: self.optional("prefer_model")?,
            max_minutes: self.optional("prefer_minutes")?,
            max_turns: self.optional("prefer_turns")?,
        })
    }
}

/// The scope as its two columns; empty stands for "every".
pub(super) fn columns(scope: &Scope) -> (String, String) {
    match scope {
        Scope::Global => (String::new(), String::new()),
        Scope::Lane { lane } => (String::new(), lane.to_string()),
        Scope::Project { slug } => (slug.to_string(), String::new()),
        Scope::ProjectLane { slug, lane } => (slug.to_string(), lane.to_string()),
    }
}
