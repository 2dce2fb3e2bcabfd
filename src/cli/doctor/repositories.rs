//! The linked repositories: what each is, and what the last look at it came to.

use std::path::Path;

use super::super::output::one_line;
use super::super::time::ago;
use super::Check;
use crate::api::feed::ForgeStatus;
use crate::model::{ForgeKind, Project, Timestamp};
use crate::work::linked::Linked;

/// One line for each. `host` is this machine: what is on the disk of another cannot be looked at.
/// Of a worker whose site is elsewhere `linked` says what was linked here.
pub fn checks(
    projects: &[Project],
    looks: &[ForgeStatus],
    host: &str,
    linked: Option<&Linked>,
    now: Timestamp,
) -> Vec<Check> {
    let look = |project: &Project| looks.iter().find(|look| look.slug == project.slug.to_string());
    projects.iter().map(|project| check(project, look(project), host, linked, now)).collect()
}

fn check(
    project: &Project,
    look: Option<&ForgeStatus>,
    host: &str,
    linked: Option<&Linked>,
    now: Timestamp,
) -> Check {
    let name = project.slug.to_string();
    let here = project.forge == ForgeKind::Local && project.host == host;
    let place = match project.forge {
        ForgeKind::Local if here => project.remote.clone(),
        ForgeKind::Local => format!("{} on {}", project.remote, project.host),
        ForgeKind::Github => project.host.clone(),
    };
    if here && !Path::new(&project.remote).is_dir() {
        let mend = format!("put it back, or where it was moved: ln -s NEW {place}");
        return Check::warn(name, format!("{place} is no longer there"), mend);
    }
    if linked.is_some_and(|linked| linked.lacks(project, host)) {
        let seen = format!("{place} was not linked from this home: its tasks fail here");
        return Check::warn(name, seen, format!("relay link {place}"));
    }
    let asked = look.and_then(|look| look.polled_at);
    let asked = asked.map(|at| format!(", looked at {}", ago(now, at))).unwrap_or_default();
    let seen = format!("{place}, branch {}{asked}", project.default_branch);
    match look.and_then(|look| look.error.as_deref()) {
        Some(error) => {
            let seen = format!("{seen}: {}", one_line(error));
            Check::warn(name, seen, "relay looks again by itself; `relay work status` says when")
        }
        None => Check::ok(name, seen),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn project(forge: ForgeKind, remote: &str) -> Project {
        Project {
            slug: "local/shop".parse().unwrap(),
            forge,
            host: "desk".to_owned(),
            remote: remote.to_owned(),
            api_base: None,
            default_branch: "main".to_owned(),
            linked_at: Timestamp(0),
        }
    }

    #[test]
    fn a_repository_that_was_moved_is_told_with_its_place() {
        let seen = |project: &Project, looks: &[ForgeStatus], host| {
            checks(std::slice::from_ref(project), looks, host, None, Timestamp(60_000)).remove(0)
        };
        let there = project(ForgeKind::Local, "/");
        assert_eq!(seen(&there, &[], "desk"), Check::ok("local/shop", "/, branch main"));
        let gone = project(ForgeKind::Local, "/nowhere/shop");
        let told = seen(&gone, &[], "desk");
        assert_eq!(
            (told.state, told.seen.as_str()),
            (State::Warn, "/nowhere/shop is no longer there")
        );
        assert_eq!(seen(&gone, &[], "attic").state, State::Ok, "another machine's disk");
        let look = ForgeStatus {
            slug: "local/shop".to_owned(),
            polled_at: Some(Timestamp(0)),
            cooling_until: None,
            error: Some("no answer".to_owned()),
        };
        let told = seen(&project(ForgeKind::Github, "https://x"), &[look], "desk");
        assert_eq!(told.state, State::Warn);
        assert_eq!(told.seen, "desk, branch main, looked at 1m ago: no answer");
    }

    #[test]
    fn a_worker_of_a_far_site_is_told_of_what_was_not_linked_there() {
        let home = tempfile::tempdir().unwrap();
        let linked = Linked::of(home.path());
        let seen = |project: &Project, host| {
            let (one, now) = (std::slice::from_ref(project), Timestamp(0));
            checks(one, &[], host, Some(&linked), now).remove(0)
        };
        let there = project(ForgeKind::Local, "/");
        let told = seen(&there, "desk");
        assert_eq!((told.state, told.mend.as_deref()), (State::Warn, Some("relay link /")));
        assert_eq!(seen(&there, "attic").state, State::Ok, "another machine's disk");
        linked.add("/").unwrap();
        assert_eq!(seen(&there, "desk").state, State::Ok);
    }
}
