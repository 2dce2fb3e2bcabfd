//! What a day may cost. A budget that is used up stops its scope until the next day begins, by the
//! queue's clock and at midnight UTC.

use super::{Queue, QueueError};
use crate::model::{Cents, Passage, Timestamp};
use crate::store::{Budget, BudgetStop};

/// A day, in milliseconds.
const DAY: i64 = 24 * 3600 * 1000;

impl Queue {
    /// Works out anew which budgets are used up, and writes only what has changed. True where
    /// something has: then another task may be claimable, or no longer.
    pub(super) async fn settle_budgets(&self) -> Result<bool, QueueError> {
        let store = &self.inner.store;
        let now = self.inner.clock.now();
        let (from, to) = day_of(now);
        let budgets = store.budgets(from, to).await?;
        let before = store.budget_stops().await?;
        let stops = used_up(&budgets, to);
        // What was reported since changes nothing.
        let same = |a: &BudgetStop, b: &BudgetStop| {
            (&a.scope, a.usd_day, a.until) == (&b.scope, b.usd_day, b.until)
        };
        let without = |all: &[BudgetStop], those: &[BudgetStop]| -> Vec<BudgetStop> {
            all.iter().filter(|a| !those.iter().any(|b| same(a, b))).cloned().collect()
        };
        let (over, begun) = (without(&before, &stops), without(&stops, &before));
        stops.iter().filter_map(|stop| stop.until).for_each(|at| self.due_at(at));
        if over.is_empty() && begun.is_empty() {
            return Ok(false);
        }
        let change = store.change_budget_stops(&over, &begun, now);
        self.write(Passage::QueueBudgets, change).await?;
        Ok(true)
    }

    /// The budgets that are used up now.
    pub(super) async fn budget_stops(&self) -> Result<Vec<BudgetStop>, QueueError> {
        let now = self.inner.clock.now();
        let mut stops = self.inner.store.budget_stops().await?;
        stops.retain(|stop| stop.until.is_none_or(|until| until > now));
        Ok(stops)
    }
}

/// When the UTC day of `now` began and ends.
fn day_of(now: Timestamp) -> (Timestamp, Timestamp) {
    let begin = now.0 - now.0.rem_euclid(DAY);
    (Timestamp(begin), Timestamp(begin.saturating_add(DAY)))
}

/// The budgets that are used up, of a day that ends at `end`.
fn used_up(budgets: &[Budget], end: Timestamp) -> Vec<BudgetStop> {
    let gone = budgets.iter().filter(|budget| budget.usd_day.is_used_up_by(budget.spent_usd));
    gone.map(|budget| BudgetStop {
        scope: budget.scope.clone(),
        usd_day: budget.usd_day,
        spent_usd: Cents::near(budget.spent_usd),
        until: (budget.usd_day > Cents::ZERO).then_some(end),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight_utc() {
        assert_eq!(day_of(Timestamp(0)), (Timestamp(0), Timestamp(DAY)));
        assert_eq!(day_of(Timestamp(DAY - 1)), (Timestamp(0), Timestamp(DAY)));
        assert_eq!(day_of(Timestamp(DAY)), (Timestamp(DAY), Timestamp(2 * DAY)));
        assert_eq!(day_of(Timestamp(-1)), (Timestamp(-DAY), Timestamp(0)));
    }
}
