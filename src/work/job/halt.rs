//! Why a job ends before its last step: the reason, what happened, and what mends it. They stay
//! apart until a person is told, so that each can be looked at, and a hint is never said twice.

use crate::model::{StopReason, Task, TaskId};
use crate::process::Redactor;

/// Why a job ends before its last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The reason the site is told.
    pub reason: StopReason,
    error: Option<String>,
    hint: Option<String>,
}

impl Stop {
    /// A stop a person is told about.
    pub fn new(reason: StopReason, error: impl Into<String>) -> Self {
        Self { reason, error: Some(error.into()), hint: None }
    }

    /// What a lane's end came to.
    pub fn of_lane(reason: StopReason, error: Option<String>, hint: Option<String>) -> Self {
        Self { reason, error, hint }
    }

    /// The same with what mends it; the reason's own hint is not said then.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same with more of what happened.
    #[must_use]
    pub(super) fn and(self, more: &str) -> Self {
        let error = self.error.unwrap_or_else(|| self.reason.to_string());
        Self { error: Some(format!("{error}; {more}")), ..self }
    }

    /// With what mends it, unless it knows better.
    pub(super) fn hinted(self, task: &TaskId) -> Self {
        let hint = self.hint.or_else(|| self.reason.hint(task));
        Self { hint, ..self }
    }

    /// The same, and no secret in what a person is told.
    pub(super) fn without(self, secrets: &Redactor) -> Self {
        let clean = |text: Option<String>| text.map(|text| secrets.text(&text));
        Self { error: clean(self.error), hint: clean(self.hint), ..self }
    }

    /// For a person: what happened, and what mends it. `None` where there is nothing to say but
    /// the reason.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        self.told_within(usize::MAX)
    }

    /// The same in so many characters: of a long error the beginning, and what mends it whole.
    #[must_use]
    pub fn told_within(&self, most: usize) -> Option<String> {
        let hint = self.hint.as_ref().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        let error = match &self.error {
            None if hint.is_empty() => return None,
            None => self.reason.to_string(),
            Some(error) => error.clone(),
        };
        let room = most.saturating_sub(hint.chars().count());
        if error.chars().count() <= room {
            return Some(format!("{error}{hint}"));
        }
        let beginning: String = error.chars().take(room.saturating_sub(1)).collect();
        Some(format!("{beginning}…{hint}"))
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, error: None, hint: None }
    }
}

/// What a worker says of a task whose run it ended so, where the site then set it aside.
pub(super) fn set_aside(task: &Task, ended: &StopReason) -> Option<String> {
    match (ended, task.stop_reason.as_ref()?) {
        (StopReason::VendorUnreachable, StopReason::VendorError) => {
            Some(format!("{} is not tried again: {}", task.id, task.message.as_deref()?))
        }
        (_, aside @ StopReason::Quarantined) => {
            let hint = aside.hint(&task.id).map(|hint| format!(" (hint: {hint})"));
            let hint = hint.unwrap_or_default();
            Some(format!("{} is set aside: its runs crash at once, three in a row{hint}", task.id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::sample;

    #[test]
    fn a_hint_is_said_once_whatever_the_error_says() {
        let task: TaskId = "acme/shop#1".parse().unwrap();
        let told = |stop: Stop| stop.hinted(&task).hinted(&task).told().unwrap();
        let own = Stop::new(StopReason::TimedOut, "it took long").hint("be quick");
        assert_eq!(told(own), "it took long (hint: be quick)");
        // A lane's words can hold what looks like one.
        let quoting = told(Stop::new(StopReason::NoChanges, "it said (hint: nothing)"));
        assert!(
            quoting.ends_with("(hint: `relay task log 'acme/shop#1'` shows what the lane did)")
        );
        let bare = told(StopReason::NoChanges.into());
        assert!(bare.starts_with("no_changes (hint: "), "{bare}");
        let kept = told(Stop::new(StopReason::TimedOut, "late").hint("be quick").and("it is kept"));
        assert_eq!(kept, "late; it is kept (hint: be quick)");
        assert_eq!(Stop::from(StopReason::LeaseLost).hinted(&task).told(), None);
        let long = Stop::new(StopReason::TimedOut, "é".repeat(50)).hint("be quick");
        assert_eq!(long.told_within(25).unwrap(), format!("{}… (hint: be quick)", "é".repeat(7)));
        assert_eq!(long.told_within(69), long.told());
    }

    #[test]
    fn a_task_that_is_set_aside_is_told_with_what_to_do() {
        let task = sample::task();
        assert_eq!(set_aside(&task, &StopReason::Crashed), None);
        let reason = Some(StopReason::Quarantined);
        let aside = Task { stop_reason: reason, ..task.clone() };
        let said = set_aside(&aside, &StopReason::Crashed).unwrap();
        assert!(
            said.starts_with("acme/shop#12 is set aside: ") && said.contains("relay task retry")
        );
        let (reason, message) = (Some(StopReason::VendorError), Some("it answered others".into()));
        let alone = Task { stop_reason: reason, message, ..task };
        let said = set_aside(&alone, &StopReason::VendorUnreachable).unwrap();
        assert_eq!(said, "acme/shop#12 is not tried again: it answered others");
        assert_eq!(set_aside(&alone, &StopReason::VendorError), None);
    }
}
