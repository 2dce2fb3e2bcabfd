//! From rows to the nouns of `model`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use sqlx::any::AnyRow;
use sqlx::{Row, ValueRef};

use super::StoreError;
use crate::model::{Epoch, Label, LeaseRef, Project, Task, Timestamp};

/// The columns of a task in reads, from `tasks`. The labels that a worker must have are those of
/// the narrowest preference at the time of the question.
macro_rules! task_columns {
    () => {
        "tasks.id, tasks.lane, tasks.state, tasks.title, tasks.body, tasks.asked_by, \
         tasks.created_at, tasks.updated_at, tasks.epoch, tasks.worker_id, tasks.expires_at, \
         tasks.parked_until, tasks.stop_reason, tasks.message, tasks.branch, tasks.pr, \
         tasks.pr_url, \
         (select p.value from preferences p \
          where p.key = 'lane.labels' \
            and p.slug in ('', tasks.slug) and p.lane in ('', tasks.lane) \
          order by p.rank desc limit 1) as required_labels"
    };
}
pub(super) use task_columns;

/// A row with its columns by name. A value that cannot be read is an error that names its column.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub(super) row: &'a AnyRow,
    pub(super) path: &'a str,
}

impl Fields<'_> {
    /// Whether the statement that gave this row has such a column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.row.try_get_raw(column).is_ok()
    }

    pub(super) fn is_null(&self, column: &str) -> bool {
        self.row.try_get_raw(column).is_ok_and(|v| v.is_null())
    }

    pub(super) fn text(&self, column: &str) -> Result<String, StoreError> {
        self.row.try_get(column).map_err(|e| self.unreadable(column, e))
    }

    pub(super) fn optional_text(&self, column: &str) -> Result<Option<String>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.text(column).map(Some) }
    }

    pub(super) fn int(&self, column: &str) -> Result<i64, StoreError> {
        self.row.try_get(column).map_err(|e| self.unreadable(column, e))
    }

    pub(super) fn optional_int(&self, column: &str) -> Result<Option<i64>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.int(column).map(Some) }
    }

    pub(super) fn count(&self, column: &str) -> Result<Option<u64>, StoreError> {
        let read = |n| u64::try_from(n).map_err(|e| self.unreadable(column, e));
        self.optional_int(column)?.map(read).transpose()
    }

    pub(super) fn real(&self, column: &str) -> Result<Option<f64>, StoreError> {
        if self.is_null(column) {
            return Ok(None);
        }
        self.row.try_get(column).map(Some).map_err(|e| self.unreadable(column, e))
    }

    pub(super) fn time(&self, column: &str) -> Result<Timestamp, StoreError> {
        self.int(column).map(Timestamp)
    }

    pub(super) fn optional_time(&self, column: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.optional_int(column)?.map(Timestamp))
    }

    /// A text with a checked type.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T, StoreError> {
        self.text(column)?.parse().map_err(|e: T::Err| self.unreadable(column, e))
    }

    pub(super) fn optional<T: FromStr<Err: Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.parsed(column).map(Some) }
    }

    /// JSON text.
    pub(super) fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        serde_json::from_str(&self.text(column)?).map_err(|e| self.unreadable(column, e))
    }

    pub(super) fn optional_json<T: DeserializeOwned>(
        &self,
        column: &str,
    ) -> Result<Option<T>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.json(column).map(Some) }
    }

    /// A word of a closed enum that serialises as one.
    pub(super) fn word<T: DeserializeOwned>(&self, column: &str) -> Result<T, StoreError> {
        let word = serde_json::Value::String(self.text(column)?);
        serde_json::from_value(word).map_err(|e| self.unreadable(column, e))
    }

    pub(super) fn optional_word<T: DeserializeOwned>(
        &self,
        column: &str,
    ) -> Result<Option<T>, StoreError> {
        if self.is_null(column) { Ok(None) } else { self.word(column).map(Some) }
    }

    /// Comma-separated labels; null is none.
    pub(super) fn labels(&self, column: &str) -> Result<Vec<Label>, StoreError> {
        let text = self.optional_text(column)?.unwrap_or_default();
        text.split(',')
            .filter(|label| !label.is_empty())
            .map(|label| label.parse().map_err(|e| self.unreadable(column, e)))
            .collect()
    }

    /// A lease, from the task's id in `column` and its epoch.
    pub(super) fn lease(&self, column: &str) -> Result<LeaseRef, StoreError> {
        Ok(LeaseRef { task: self.parsed(column)?, epoch: Epoch(self.int("epoch")?) })
    }

    /// A task, from the columns of `task_columns!`.
    pub(super) fn task(&self) -> Result<Task, StoreError> {
        Ok(Task {
            id: self.parsed("id")?,
            lane: self.parsed("lane")?,
            state: self.parsed("state")?,
            title: self.text("title")?,
            body: self.text("body")?,
            asked_by: self.text("asked_by")?,
            required_labels: self.labels("required_labels")?,
            created_at: self.time("created_at")?,
            updated_at: self.time("updated_at")?,
            epoch: Epoch(self.int("epoch")?),
            worker: self.optional("worker_id")?,
            expires_at: self.optional_time("expires_at")?,
            parked_until: self.optional_time("parked_until")?,
            stop_reason: self.optional_json("stop_reason")?,
            message: self.optional_text("message")?,
            branch: self.optional_text("branch")?,
            pr: self.count("pr")?,
            pr_url: self.optional_text("pr_url")?,
        })
    }

    /// A project.
    pub(super) fn project(&self) -> Result<Project, StoreError> {
        Ok(Project {
            slug: self.parsed("slug")?,
            forge: self.word("forge")?,
            host: self.text("host")?,
            remote: self.text("remote")?,
            api_base: self.optional_text("api_base")?,
            default_branch: self.text("default_branch")?,
            linked_at: self.time("linked_at")?,
        })
    }

    pub(super) fn unreadable(&self, column: &str, error: impl Display) -> StoreError {
        StoreError::Row {
            path: self.path.to_owned(),
            column: column.to_owned(),
            detail: error.to_string(),
        }
    }
}

/// A value as JSON text, for a column.
pub(super) fn json_text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The word a closed enum serialises as, for a column.
pub(super) fn word_text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
