//! A task that its vendor does not answer while it answers others of the lane: no outage, and
//! nothing that waiting mends.

use crate::model::Timestamp;
use crate::store::{EndedAt, Unanswered};

/// So many times a task is passed over in a row by a vendor that was there, and is tried again. The
/// pauses alone make it over half an hour; of a vendor that answers every second run, one task in
/// four thousand would be taken for one.
pub const PASSED_OVER: u32 = 12;

/// How many of the task's own runs were passed over: before the next one of them ended, or now, their
/// machine had an answer for another task under the same model. Another machine's network tells
/// nothing of this one's, and a model that is there nothing of one that is away; nor does a run of
/// which nobody knows the model.
pub(super) fn passed_over(runs: &Unanswered, now: Timestamp) -> u32 {
    let next = runs.own.iter().skip(1).map(|run| run.at).chain([now]);
    let passed = runs.own.iter().zip(next).filter(|(run, next)| {
        let is_like = |other: &&EndedAt| {
            run.model.is_some() && (&other.worker, &other.model) == (&run.worker, &run.model)
        };
        let mut others = runs.answered.iter().filter(is_like);
        others.any(|other| other.at > run.at && other.at <= *next)
    });
    u32::try_from(passed.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(worker: u8, seconds: i64) -> EndedAt {
        let worker = format!("00000000-0000-7000-8000-0000000000{worker:02}").parse();
        let (worker, at) = (worker.expect("an id"), Timestamp(seconds * 1000));
        EndedAt { worker, at, model: Some(None) }
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

    #[test]
    fn an_answer_counts_under_the_same_model_alone_and_where_it_is_known() {
        let under = |model: Option<Option<&str>>, run: EndedAt| {
            let name = |text: &str| text.parse().expect("a name");
            EndedAt { model: model.map(|model| model.map(name)), ..run }
        };
        let count = |own, other| {
            let own = vec![under(own, at(1, 10))];
            let answered = vec![under(other, at(1, 15))];
            passed_over(&Unanswered { own, answered }, Timestamp(50_000))
        };
        assert_eq!(count(Some(Some("opus")), Some(Some("opus"))), 1);
        assert_eq!(count(Some(None), Some(None)), 1, "the lane's own");
        assert_eq!(count(Some(Some("opus")), Some(Some("haiku"))), 0);
        assert_eq!(count(Some(Some("opus")), Some(None)), 0, "the lane's own may be another");
        assert_eq!(count(None, None), 0, "nobody knows of either");
        assert_eq!(count(None, Some(None)), 0);
    }
}
