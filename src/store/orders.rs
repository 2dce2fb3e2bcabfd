//! What people told workers and still holds. A claim reads it by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Fields, Sql, Store, StoreError};
use crate::model::{Actor, Drain, LaneName, Order, Orders, Pause, Timestamp, WorkerId, WorkerName};

impl Store {
    /// Writes down what a worker was told of these lanes, or as a whole where none is named, and
    /// tells it where that is news. Nothing is changed where there is no such worker.
    ///
    /// It is several statements, so on Postgres it takes turns with registering: a drain is of the
    /// start that lives, and a new start takes away those of others.
    pub async fn order(
        &self,
        worker: &WorkerName,
        order: Order,
        lanes: &[LaneName],
        by: &Actor,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let whole = [""];
        let named: Vec<&str> = lanes.iter().map(LaneName::as_str).collect();
        let lanes: &[&str] = if named.is_empty() { &whole } else { &named };
        let mut text = String::new();
        for i in 0..lanes.len() {
            text.push_str(&text_of(order, 4 + 2 * i, 5 + 2 * i));
        }
        let mut sql = Sql::made(text).bind(worker.to_string()).bind(by.0.clone()).bind(now.0);
        for lane in lanes {
            let data = match *lane {
                "" => serde_json::json!({ "worker": worker }),
                lane => serde_json::json!({ "worker": worker, "lane": lane }),
            };
            sql = sql.bind(*lane).bind(data.to_string());
        }
        self.write(sql).await.map(|_| ())
    }

    /// What each worker was told and holds; those that were told nothing are not there.
    pub async fn orders(&self) -> Result<BTreeMap<WorkerId, Orders>, StoreError> {
        self.orders_of(Sql::new(
            "select worker_id, lane, kind, given_by, given_at from orders
            order by worker_id, lane, kind",
        ))
        .await
    }

    /// The same from a question that gives those columns, in that order.
    pub(super) async fn orders_of(
        &self,
        sql: Sql,
    ) -> Result<BTreeMap<WorkerId, Orders>, StoreError> {
        let mut told: BTreeMap<WorkerId, Orders> = BTreeMap::new();
        for row in self.read(sql).await?.iter().map(|row| self.fields(row)) {
            add(told.entry(row.parsed("worker_id")?).or_default(), &row)?;
        }
        Ok(told)
    }
}

fn add(orders: &mut Orders, row: &Fields<'_>) -> Result<(), StoreError> {
    let (by, at) = (Actor(row.text("given_by")?), row.time("given_at")?);
    if row.text("kind")? == "drain" {
        orders.drain = Some(Drain { by, at });
        return Ok(());
    }
    let lane = row.text("lane")?;
    let lane = if lane.is_empty() { None } else { Some(row.parsed("lane")?) };
    orders.paused.push(Pause { lane, by, at });
    Ok(())
}

/// The statements of one order for the lane in the parameter `lane`, told with `data`.
fn text_of(order: Order, lane: usize, data: usize) -> String {
    let mut text = String::new();
    let told = |kind: &str, whether: &str| {
        format!(
            "insert into events (at, kind, actor, data)
                select $3, '{kind}', $2, ${data} from workers w where w.name = $1 and {whether};"
        )
    };
    let _ = match order {
        Order::Pause => write!(
            text,
            "{told}
            insert into orders (worker_id, lane, kind, given_by, given_at)
                select id, ${lane}, 'pause', $2, $3 from workers where name = $1
                on conflict (worker_id, lane, kind) do nothing;",
            told = told(
                "worker.paused",
                &format!(
                    "not exists (select 1 from orders o
                        where o.worker_id = w.id and o.kind = 'pause' and o.lane = ${lane})"
                ),
            ),
        ),
        Order::Resume => write!(
            text,
            "{told}
            delete from orders
                where kind = 'pause' and (lane = ${lane} or ${lane} = '')
                  and worker_id = (select id from workers where name = $1);",
            told = told(
                "worker.resumed",
                &format!(
                    "exists (select 1 from orders o where o.worker_id = w.id
                        and o.kind = 'pause' and (o.lane = ${lane} or ${lane} = ''))"
                ),
            ),
        ),
        Order::Drain => write!(
            text,
            "{told}
            insert into orders (worker_id, lane, kind, instance_id, given_by, given_at)
                select id, ${lane}, 'drain', instance_id, $2, $3 from workers where name = $1
                on conflict (worker_id, lane, kind) do nothing;",
            told = told(
                "worker.draining",
                "not exists (select 1 from orders o
                    where o.worker_id = w.id and o.kind = 'drain')",
            ),
        ),
    };
    text
}
