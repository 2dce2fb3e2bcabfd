//! Preferences, and the labels of `lane.labels` taken apart for the claim.

use std::fmt::Write as _;

use sqlx::any::AnyRow;

use super::{Sql, Store, StoreError};
use crate::model::{Actor, Label, LaneName, Preference, PreferenceKey, RepoName, Scope, Timestamp};

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
            let slug: Option<RepoName> =
                if row.text("slug")?.is_empty() { None } else { Some(row.parsed("slug")?) };
            let lane: Option<LaneName> =
                if row.text("lane")?.is_empty() { None } else { Some(row.parsed("lane")?) };
            let scope = match (slug, lane) {
                (None, None) => Scope::Global,
                (None, Some(lane)) => Scope::Lane { lane },
                (Some(slug), None) => Scope::Project { slug },
                (Some(slug), Some(lane)) => Scope::ProjectLane { slug, lane },
            };
            Ok(Preference { key: row.parsed("key")?, scope, value: row.text("value")? })
        };
        rows.iter().map(preference).collect()
    }
}

/// The scope as its two columns; empty stands for "every".
fn columns(scope: &Scope) -> (String, String) {
    match scope {
        Scope::Global => (String::new(), String::new()),
        Scope::Lane { lane } => (String::new(), lane.to_string()),
        Scope::Project { slug } => (slug.to_string(), String::new()),
        Scope::ProjectLane { slug, lane } => (slug.to_string(), lane.to_string()),
    }
}
