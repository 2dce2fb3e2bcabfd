//! A task that its vendor does not answer while it answers others of the lane: no outage, and
//! nothing that waiting mends.

use crate::model::Timestamp;
use crate::store::Unanswered;

/// So many times a task is passed over in a row by a vendor that was there, and is tried again. The
/// pauses alone make it over half an hour; of a vendor that answers every second run, one task in
/// four thousand would be taken for one.
pub const PASSED_OVER: u32 = 12;

/// How many of the task's own runs were passed over: before the next one of them ended, or now, their
/// machine had an answer for another task. Another machine's network tells nothing of this one's.
pub(super) fn passed_over(runs: &Unanswered, now: Timestamp) -> u32 {
    let next = runs.own.iter().skip(1).map(|run| run.at).chain([now]);
    let passed = runs.own.iter().zip(next).filter(|(run, next)| {
        let mut others = runs.answered.iter().filter(|other| other.worker == run.worker);
        others.any(|other| other.at > run.at && other.at <= *next)
    });
    u32::try_from(passed.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EndedAt;

    fn at(worker: u8, seconds: i64) -> EndedAt {
        let worker = format!("00000000-0000-7000-8000-0000000000{worker:02}").parse();
        EndedAt { worker: worker.expect("an id"), at: Timestamp(seconds * 1000) }
    }

    #[test]
    fn an_answer_counts_once_for_the_run_before_it_and_at_its_own_machine() {
        let own = vec![at(1, 10), at(1, 20), at(2, 30), at(1, 40)];
        let count = |answered: Vec<EndedAt>| {
            passed_over(&Unanswered { own: own.clone(), answered }, Timestamp(50_000))
        };
        assert_eq!(count(vec![]), 0);
        assert_eq!(count(vec![at(1, 15), at(1, 16)]), 1, "one pause");
        assert_eq!(count(vec![at(2, 15), at(1, 35)]), 0, "elsewhere");
        assert_eq!(count(vec![at(1, 5), at(1, 51)]), 0, "before the first, and after now");
        assert_eq!(count(vec![at(1, 20), at(1, 30), at(2, 40), at(1, 50)]), 4);
    }
}
