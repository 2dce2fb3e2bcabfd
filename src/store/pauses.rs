//! Which workers take nothing of a lane before a time.

use sqlx::any::AnyRow;

use super::{Sql, Store, StoreError};
use crate::model::{Disposition, LaneName, StopReason, Timestamp, WorkerId};

impl Store {
    /// The workers whose last word of a lane was that a quota or a limit is used up, and until when.
    /// A worker that hears so pauses the lane; it keeps that to itself, so it is read off the task
    /// that it was told of.
    pub async fn paused(
        &self,
        lane: &LaneName,
        now: Timestamp,
    ) -> Result<Vec<(WorkerId, Timestamp)>, StoreError> {
        let sql = Sql::new(
            "select r.worker_id, t.parked_until, t.stop_reason
            from tasks t join runs r on r.task_id = t.id and r.epoch = t.epoch
            where t.parked_until is not null and t.parked_until > $2 and t.lane = $1
              and t.stop_reason is not null
            order by t.parked_until desc",
        )
        .bind(lane.to_string())
        .bind(now.0);
        let rows = self.read(sql).await?;
        let pause = |row: &AnyRow| {
            let row = self.fields(row);
            let reason: StopReason = row.json("stop_reason")?;
            let pauses = matches!(reason.disposition(), Disposition::Park(_));
            let pause = (row.parsed("worker_id")?, row.time("parked_until")?);
            Ok(pauses.then_some(pause))
        };
        rows.iter().map(pause).filter_map(Result::transpose).collect()
    }
}
