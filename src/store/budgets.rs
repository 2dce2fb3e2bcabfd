//! Budgets of a day: what was reported, and which are used up.

use std::fmt::Write as _;

use sqlx::any::AnyRow;

use super::preferences::columns;
use super::{Sql, Store, StoreError};
use crate::model::{Cents, Scope, Timestamp};

/// A budget and what runs reported of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// For whom it holds.
    pub scope: Scope,
    /// How much a day may cost.
    pub usd_day: Cents,
    /// What was reported, in dollars.
    pub spent_usd: f64,
}

/// A budget that is used up: no task it covers is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStop {
    /// For whom it holds.
    pub scope: Scope,
    /// How much a day may cost.
    pub usd_day: Cents,
    /// What was reported when it was used up.
    pub spent_usd: Cents,
    /// When it is there again; `None` where it is nothing.
    pub until: Option<Timestamp>,
}

impl Store {
    /// Every budget with what runs that ended from `from` up to `to` reported. A run that reported
    /// no cost adds nothing.
    pub async fn budgets(&self, from: Timestamp, to: Timestamp) -> Result<Vec<Budget>, StoreError> {
        let sql = Sql::new(
            "select b.slug, b.lane, b.value,
                -- What an earlier version let in: less than nothing, or more than a run can cost.
                (select sum(case when u.cost_usd > 10000 then 10000 else u.cost_usd end)
                 from usage u join tasks t on t.id = u.task_id
                 where u.cost_usd is not null and u.cost_usd >= 0 and u.at >= $1 and u.at < $2
                   and b.slug in ('', t.slug) and b.lane in ('', t.lane)) as spent
            from preferences b where b.key = 'budget.usd_day'
            order by b.rank, b.slug, b.lane",
        )
        .bind(from.0)
        .bind(to.0);
        let rows = self.read(sql).await?;
        let budget = |row: &AnyRow| {
            let row = self.fields(row);
            Ok(Budget {
                scope: row.scope()?,
                usd_day: row.parsed("value")?,
                spent_usd: row.real("spent")?.unwrap_or_default(),
            })
        };
        rows.iter().map(budget).collect()
    }

    /// The budgets that are used up, also those whose day is over and that nobody took away yet.
    pub async fn budget_stops(&self) -> Result<Vec<BudgetStop>, StoreError> {
        let sql = Sql::new(
            "select slug, lane, usd_day, spent_usd, until from budget_stops order by slug, lane",
        );
        let rows = self.read(sql).await?;
        let stop = |row: &AnyRow| {
            let row = self.fields(row);
            Ok(BudgetStop {
                scope: row.scope()?,
                usd_day: row.parsed("usd_day")?,
                spent_usd: row.parsed("spent_usd")?,
                until: row.optional_time("until")?,
            })
        };
        rows.iter().map(stop).collect()
    }

    /// Takes away the stops of `over` and makes those of `begun`, each told once as `task.parked`,
    /// of no task: all that the scope covers wait.
    pub async fn change_budget_stops(
        &self,
        over: &[BudgetStop],
        begun: &[BudgetStop],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut text = String::new();
        let mut at = 1;
        for _ in over {
            let _ = write!(
                text,
                "delete from budget_stops where slug = ${} and lane = ${}
                    and usd_day = ${} and coalesce(until, 0) = ${};",
                at + 1,
                at + 2,
                at + 3,
                at + 4
            );
            at += 4;
        }
        for _ in begun {
            let [slug, lane, usd_day, spent, until, data] = [1, 2, 3, 4, 5, 6].map(|i| at + i);
            let _ = write!(
                text,
                "insert into budget_stops (slug, lane, usd_day, spent_usd, until)
                    values (${slug}, ${lane}, ${usd_day}, ${spent}, ${until})
                    on conflict (slug, lane) do nothing;
                -- Another site may have told it.
                insert into events (at, kind, actor, data)
                    select $1, 'task.parked', 'site', ${data} where changes() = 1;"
            );
            at += 6;
        }
        let mut sql = Sql::made(text).bind(now.0);
        for stop in over {
            let (slug, lane) = columns(&stop.scope);
            let until = stop.until.map_or(0, |at| at.0);
            sql = sql.bind(slug).bind(lane).bind(stop.usd_day.to_string()).bind(until);
        }
        for stop in begun {
            let (slug, lane) = columns(&stop.scope);
            let data = serde_json::json!({
                "why": "budget", "scope": stop.scope, "usd_day": stop.usd_day,
                "spent_usd": stop.spent_usd, "until": stop.until,
            });
            sql = sql
                .bind(slug)
                .bind(lane)
                .bind(stop.usd_day.to_string())
                .bind(stop.spent_usd.to_string())
                .bind(stop.until.map(|at| at.0))
                .bind(data.to_string());
        }
        self.write(sql).await.map(|_| ())
    }
}

/// The condition on a task `q` under which a budget that covers it is used up at the time `$now`.
macro_rules! no_budget_left {
    ($now:literal) => {
        concat!(
            "exists (select 1 from budget_stops s \
             where s.slug in ('', q.slug) and s.lane in ('', q.lane) \
               and (s.until is null or s.until > ",
            $now,
            "))"
        )
    };
}
pub(super) use no_budget_left;
