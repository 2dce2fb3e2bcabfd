//! What the runs tell of a task that its vendor does not answer.

use super::{Fields, Sql, Store, StoreError};
use crate::model::{LeaseRef, ModelName, Timestamp, WorkerId};

/// So many of a task's newest runs are looked at.
const RUNS: i64 = 48;
/// So many of the answers to other tasks, the newest.
const ANSWERS: i64 = 5_000;

/// A run by when it ended, at which worker, and under which model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAt {
    /// Whose.
    pub worker: WorkerId,
    /// When.
    pub at: Timestamp,
    /// Where it is known: what the preferences named for it as it was claimed, if anything.
    pub model: Option<Option<ModelName>>,
}

/// Runs of a task that were not answered, and runs of others that were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// The task's own, in a row, the oldest first.
    pub own: Vec<EndedAt>,
    /// Of other tasks of its lane since then.
    pub answered: Vec<EndedAt>,
}

impl Store {
    /// The runs before the one under `lease` that ended in a row as `vendor_unreachable`, since the
    /// task was wished for or retried, and since then those of others that came to a good end.
    pub async fn unanswered(&self, lease: &LeaseRef) -> Result<Unanswered, StoreError> {
        let ended = |row: Fields<'_>| {
            let (worker, at) = (row.parsed("worker_id")?, row.time("at")?);
            let model = row.optional_text("claimed")?.as_deref().and_then(model_of);
            Ok::<_, StoreError>(EndedAt { worker, at, model })
        };
        // A run that its worker gave up says nothing.
        let own = Sql::new(
            r#"select r.worker_id, r.finished_at as at, c.data as claimed
            from runs r join tasks t on t.id = r.task_id
                left join events c on c.task_id = r.task_id and c.kind = 'run.claimed'
                    and replace(c.data, '"run":"' || r.id || '"', '') <> c.data
            where r.task_id = $1 and r.epoch < $2 and r.epoch > t.request_epoch
              and r.stop_reason = '{"reason":"vendor_unreachable"}'
              and r.epoch > (select coalesce(max(o.epoch), 0) from runs o
                where o.task_id = $1 and o.epoch < $2 and o.stop_reason not in (
                    '{"reason":"vendor_unreachable"}', '{"reason":"worker_stopped"}',
                    '{"reason":"lease_lost"}'))
              and r.claimed_at >= (select coalesce(max(e.at), 0) from events e
                where e.task_id = $1 and e.kind = 'task.retried')
            order by r.epoch desc limit $3"#,
        )
        .bind(lease.task.to_string())
        .bind(lease.epoch.0)
        .bind(RUNS);
        let rows = self.read(own).await?;
        let own = rows.iter().rev().map(|row| ended(self.fields(row)));
        let own: Vec<EndedAt> = own.collect::<Result<_, _>>()?;
        let Some(first) = own.first() else { return Ok(Unanswered::default()) };
        // By events, which stand in the order of time and need no index for it.
        let answered = Sql::new(
            r#"select r.worker_id, e.at, c.data as claimed
            from events e join tasks t on t.id = e.task_id
                join runs r on r.task_id = e.task_id and r.finished_at = e.at
                join events c on c.task_id = r.task_id and c.kind = 'run.claimed'
                    and replace(c.data, '"run":"' || r.id || '"', '') <> c.data
            where e.seq > (select min(x.seq) from events x where x.task_id = $1 and x.at >= $2)
              and e.kind = 'run.finished' and e.task_id <> $1
              and t.lane = (select o.lane from tasks o where o.id = $1)
            order by e.seq desc limit $3"#,
        )
        .bind(lease.task.to_string())
        .bind(first.at.0)
        .bind(ANSWERS);
        let rows = self.read(answered).await?;
        let answered = rows.iter().map(|row| ended(self.fields(row)));
        Ok(Unanswered { answered: answered.collect::<Result<_, _>>()?, own })
    }
}

/// What `run.claimed` tells of the model. Claims of an older relay tell nothing of it.
fn model_of(claimed: &str) -> Option<Option<ModelName>> {
    let claimed: serde_json::Value = serde_json::from_str(claimed).ok()?;
    serde_json::from_value(claimed.get("model")?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_model_is_told_from_one_that_is_not_known() {
        let model = |text: &str| model_of(text).map(|model| model.map(|name| name.to_string()));
        assert_eq!(model(r#"{"epoch":1,"run":"r","model":"opus"}"#), Some(Some("opus".to_owned())));
        assert_eq!(model(r#"{"epoch":1,"run":"r","model":null}"#), Some(None));
        assert_eq!(model(r#"{"epoch":1,"run":"r"}"#), None, "of an older relay");
        assert_eq!(model(""), None);
    }
}
