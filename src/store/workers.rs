//! Workers: who they are, and when they were heard of.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::deaths::Ends;
use super::{DeathLimits, NewWorker, Sql, Store, StoreError};
use crate::model::{
    InstanceId, LeaseRef, Orders, Timestamp, Worker, WorkerId, WorkerName, WorkerState,
};

impl Store {
    /// Makes the worker, or lets a new start of it speak for it: leases of the start before end,
    /// and their tasks are queued again. Gives those leases. Told as `worker.registered` the first
    /// time, as `worker.online` when it is another start or returns after it had said good-bye.
    pub async fn register(
        &self,
        new: &NewWorker,
        id: &WorkerId,
        now: Timestamp,
        limits: &DeathLimits,
    ) -> Result<Vec<LeaseRef>, StoreError> {
        let traits: Vec<(&str, String)> = new
            .lanes
            .iter()
            .map(|lane| ("lane", lane.to_string()))
            .chain(new.labels.iter().map(|label| ("label", label.to_string())))
            .chain(new.forges.iter().map(|forge| ("forge", forge.clone())))
            .collect();
        let mut text = String::from(
            "insert into events (at, kind, actor, data)
                select $7, case when exists (select 1 from workers where name = $2)
                        then 'worker.online' else 'worker.registered' end,
                    'runner:' || $2, $6
                where not exists (
                    select 1 from workers where name = $2 and instance_id = $3 and offline = 0);",
        );
        text.push_str(&limits.end(&Ends {
            which: "tasks.worker_id = (select id from workers where name = $2 and instance_id <> $3)",
            now: "$7",
            actor: "'runner:' || $2",
            by: "instance",
            why: "new_instance",
            message: "its worker was started anew",
        }));
        text.push_str(
            "
            insert into workers (id, name, instance_id, host, version, registered_at, last_seen)
                values ($1, $2, $3, $4, $5, $7, $7)
                on conflict (name) do update set instance_id = excluded.instance_id,
                    host = excluded.host, version = excluded.version,
                    last_seen = excluded.last_seen, offline = 0;
            delete from worker_traits
                where worker_id = (select id from workers where name = $2);
            -- A drain is of one start.
            delete from orders
                where kind = 'drain' and instance_id <> $3
                  and worker_id = (select id from workers where name = $2);",
        );
        if !traits.is_empty() {
            text.push_str(
                "insert into worker_traits (worker_id, kind, value)
                select w.id, v.column1, v.column2 from workers w, (values ",
            );
            for i in 0..traits.len() {
                let comma = if i == 0 { "" } else { ", " };
                let _ = write!(text, "{comma}(${}, ${})", 8 + 2 * i, 9 + 2 * i);
            }
            text.push_str(") as v where w.name = $2 on conflict do nothing;");
        }
        let data = serde_json::json!({ "host": new.host, "version": new.version });
        let mut sql = Sql::made(text)
            .bind(id.to_string())
            .bind(new.name.to_string())
            .bind(new.instance.to_string())
            .bind(new.host.clone())
            .bind(new.version.clone())
            .bind(data.to_string())
            .bind(now.0);
        for (kind, value) in traits {
            sql = sql.bind(kind).bind(value);
        }
        let rows = self.write(sql).await?;
        rows.iter().map(|row| self.fields(row).lease("ended")).collect()
    }

    /// Whether `instance` speaks for the worker.
    pub async fn speaks_for(
        &self,
        worker: &WorkerId,
        instance: &InstanceId,
    ) -> Result<bool, StoreError> {
        let sql = Sql::new("select id from workers where id = $1 and instance_id = $2")
            .bind(worker.to_string())
            .bind(instance.to_string());
        Ok(!self.read(sql).await?.is_empty())
    }

    /// Every worker, by name. Its state is derived from `now` and when the database last heard
    /// of it; one whose token was revoked is offline.
    pub async fn workers(&self, now: Timestamp) -> Result<Vec<Worker>, StoreError> {
        self.of(now, Which::All).await
    }

    /// One worker, as [`Store::workers`] tells it.
    pub async fn worker(
        &self,
        id: &WorkerId,
        now: Timestamp,
    ) -> Result<Option<Worker>, StoreError> {
        Ok(self.of(now, Which::Id(id)).await?.pop())
    }

    /// The worker of this name, as [`Store::workers`] tells it.
    pub async fn worker_named(
        &self,
        name: &WorkerName,
        now: Timestamp,
    ) -> Result<Option<Worker>, StoreError> {
        Ok(self.of(now, Which::Name(name)).await?.pop())
    }

    async fn of(&self, now: Timestamp, which: Which<'_>) -> Result<Vec<Worker>, StoreError> {
        let some = match which {
            Which::All => "",
            Which::Id(_) => "where id = $1",
            Which::Name(_) => "where name = $1",
        };
        let bound = |text: String| match which {
            Which::All => Sql::made(text),
            Which::Id(id) => Sql::made(text).bind(id.to_string()),
            Which::Name(name) => Sql::made(text).bind(name.to_string()),
        };
        let text = format!(
            "select id, name, host, version, last_seen, offline, interval_ms,
                (select k.revoked_at from tokens k where k.id = workers.token_id) as revoked_at
            from workers {some} order by name"
        );
        let rows = self.read(bound(text)).await?;
        let mut workers = Vec::with_capacity(rows.len());
        for row in rows.iter().map(|row| self.fields(row)) {
            let last_seen = row.time("last_seen")?;
            let revoked = !row.is_null("revoked_at");
            workers.push(Worker {
                id: row.parsed("id")?,
                name: row.parsed("name")?,
                host: row.text("host")?,
                lanes: Vec::new(),
                labels: Vec::new(),
                forges: Vec::new(),
                version: row.text("version")?,
                state: WorkerState::derive(now, last_seen, revoked || row.int("offline")? != 0),
                last_seen,
                interval_ms: row.count("interval_ms")?,
                leases: Vec::new(),
                ending: false,
                revoked,
                orders: Orders::default(),
            });
        }
        let places: BTreeMap<WorkerId, usize> =
            workers.iter().enumerate().map(|(i, w)| (w.id.clone(), i)).collect();

        let of_those = match which {
            Which::All => String::new(),
            Which::Id(_) | Which::Name(_) => {
                format!("and worker_id = (select id from workers {some})")
            }
        };
        let text = format!(
            "select worker_id, kind, value from worker_traits
            where worker_id is not null {of_those} order by worker_id, kind, value"
        );
        let rows = self.read(bound(text)).await?;
        for row in rows.iter().map(|row| self.fields(row)) {
            let place = places.get(&row.parsed::<WorkerId>("worker_id")?);
            let Some(worker) = place.and_then(|i| workers.get_mut(*i)) else { continue };
            match row.text("kind")?.as_str() {
                "lane" => worker.lanes.push(row.parsed("value")?),
                "label" => worker.labels.push(row.parsed("value")?),
                _ => worker.forges.push(row.text("value")?),
            }
        }

        let text = format!(
            "select worker_id, id, epoch from tasks
            where worker_id is not null {of_those} order by updated_at, id"
        );
        let rows = self.read(bound(text)).await?;
        for row in rows.iter().map(|row| self.fields(row)) {
            let place = places.get(&row.parsed::<WorkerId>("worker_id")?);
            let Some(worker) = place.and_then(|i| workers.get_mut(*i)) else { continue };
            worker.leases.push(row.lease("id")?);
        }

        let text = format!(
            "select worker_id, lane, kind, given_by, given_at from orders
            where worker_id is not null {of_those} order by worker_id, lane, kind"
        );
        for (id, orders) in self.orders_of(bound(text)).await? {
            let place = places.get(&id);
            if let Some(worker) = place.and_then(|i| workers.get_mut(*i)) {
                worker.orders = orders;
            }
        }
        Ok(workers)
    }
}

/// Which workers are read.
#[derive(Clone, Copy)]
enum Which<'a> {
    All,
    Id(&'a WorkerId),
    Name(&'a WorkerName),
}
