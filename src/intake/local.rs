//! A repository on this disk: a task is done once its branch was merged.

use std::path::PathBuf;

use super::{Intake, IntakeError, Reconciled};
use crate::forge::local;
use crate::model::{Actor, Project, TaskState};

impl Intake {
    pub(super) async fn reconcile_local(
        &self,
        project: &Project,
        out: &mut Reconciled,
    ) -> Result<(), IntakeError> {
        if project.host != self.host {
            return Ok(());
        }
        for task in self.open_tasks(&project.slug).await? {
            if task.state != TaskState::Review {
                continue;
            }
            let Some(pull) = self.local_pull(&task.id).await? else { continue };
            let path = PathBuf::from(&project.remote);
            let branch = project.default_branch.clone();
            let look = move || local::merged(&path, [&pull.base, &branch], &pull.head);
            // A walk through history reads the disk: not on a thread that serves requests.
            let merged = tokio::task::spawn_blocking(look)
                .await
                .map_err(|_| IntakeError::CutShort(project.remote.clone()))??;
            if merged {
                out.done.push(self.queue.done(&task.id, Actor::site()).await?);
            }
        }
        Ok(())
    }
}
