//! Whether a labelled issue becomes a task: who set the label, whether they may, and whether the
//! text is still the one they read.

use super::memo::{Known, Wish};
use super::{Intake, IntakeError, Reconciled};
use crate::forge::github::{GitHub, Issue, LabelSet, Permission, Wording};
use crate::forge::{ForgeError, words};
use crate::model::{LaneName, RepoName, TaskState, Timestamp};
use crate::queue::{Added, NewTask};

impl Intake {
    /// Makes a task of a labelled issue, unless it has one or may not.
    pub(super) async fn consider(
        &self,
        forge: &GitHub,
        slug: &RepoName,
        lane: &LaneName,
        issue: &Issue,
        known: &mut Known,
        out: &mut Reconciled,
    ) -> Result<(), IntakeError> {
        let wish: Wish = (issue.number, lane.clone());
        if known.is_judged(&wish, issue.updated_at) {
            return Ok(());
        }
        let task = self.task_of(slug, &wish).await?;
        // A task under way has what it was asked for.
        if task.as_ref().is_some_and(|t| !t.state.is_final() && t.state != TaskState::Review) {
            return Ok(());
        }
        let label = words::agent_label(lane);
        let history = forge.label_history(slug, issue.number, &label).await?;
        let Some(set) = history.set.clone() else {
            self.refuse(wish, issue, None, words::sender_unknown(&label), known, out);
            return Ok(());
        };
        if history.removed_at.is_some_and(|removed| removed > set.at) {
            // Taken off since the list was read; the next look sees the issue without it.
            return Ok(());
        }
        // When it was set by the clock that tasks are written down with.
        let set_at = forge.here(set.at);
        if task.is_some_and(|t| set_at <= t.updated_at) {
            known.judge(wish, issue.updated_at);
            return Ok(());
        }
        let by = match self.sender(forge, slug, &label, &set).await? {
            Ok(by) => by,
            Err(why) => {
                self.refuse(wish, issue, Some(set.at), why, known, out);
                return Ok(());
            }
        };
        let (title, body) = match forge.wording(slug, issue.number, &history).await? {
            Wording::Same { title, body } => (title, body),
            Wording::Gone => return Ok(()),
            Wording::Changed => {
                self.refuse(wish, issue, Some(set.at), words::text_changed(&label), known, out);
                return Ok(());
            }
            Wording::Unknown => {
                self.refuse(wish, issue, Some(set.at), words::text_unknown(&label), known, out);
                return Ok(());
            }
        };
        let wanted = NewTask {
            slug: slug.clone(),
            lane: lane.clone(),
            number: Some(issue.number),
            title,
            body,
            asked_by: by,
            seen_at: set_at,
        };
        match self.queue.add(wanted).await? {
            Added::New(task) | Added::Again(task) => out.added.push(task),
            Added::Existing(_) => known.judge(wish, issue.updated_at),
        }
        Ok(())
    }

    /// The login that set the label where it may, else why not.
    async fn sender(
        &self,
        forge: &GitHub,
        slug: &RepoName,
        label: &str,
        set: &LabelSet,
    ) -> Result<Result<String, String>, ForgeError> {
        let Some(by) = set.by.clone() else { return Ok(Err(words::sender_unknown(label))) };
        let listed = !self.allowed_senders.is_empty();
        let may = if listed {
            self.allowed_senders.iter().any(|login| login.eq_ignore_ascii_case(&by))
        } else if by.ends_with("[bot]") {
            // An automation labels what strangers write.
            return Ok(Err(words::sender_is_program(label, &by)));
        } else {
            forge.permission(slug, &by).await? == Permission::Write
        };
        Ok(if may { Ok(by) } else { Err(words::sender_refused(label, &by, listed)) })
    }

    fn refuse(
        &self,
        wish: Wish,
        issue: &Issue,
        set_at: Option<Timestamp>,
        why: String,
        known: &mut Known,
        out: &mut Reconciled,
    ) {
        known.judge(wish.clone(), issue.updated_at);
        out.refuse_once(wish, set_at, why, known);
    }
}
