//! Tasks: asked for, and looked at.

use sqlx::any::AnyRow;

use super::budgets::no_budget_left;
use super::row::task_columns;
use super::{Need, NewTask, Sql, Store, StoreError};
use crate::model::{RepoName, Task, TaskId, TaskState, Timestamp};

/// What became of a wish for a task.
#[derive(Debug)]
pub enum Asked {
    /// The project is not linked.
    NoProject,
    /// There is a new task.
    New(Task),
    /// A task that had ended is queued anew.
    Again(Task),
    /// Nothing changed.
    Existing(Task),
}

impl Store {
    /// A task is asked for. An ended one is queued anew where this wish is newer than any it has
    /// met and than its end; the text is then the wish's, and it starts over.
    pub async fn ask(&self, new: &NewTask, now: Timestamp) -> Result<Asked, StoreError> {
        let actor = format!("user:{}", new.asked_by);
        // Without a number it is a task that is not there yet.
        let again = if new.number.is_some() { AGAIN } else { "" };
        let mut sql = Sql::made(format!("{again}{ADDED}"));
        if new.number.is_none() {
            sql = sql.postgres(ADDED_POSTGRES);
        }
        let sql = sql
            .bind(new.slug.to_string())
            .bind(new.number.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
            .bind(new.lane.to_string())
            .bind(new.title.clone())
            .bind(new.body.clone())
            .bind(new.asked_by.clone())
            .bind(new.seen_at.0)
            .bind(now.0)
            .bind(actor);
        let rows = self.write(sql).await?;
        let (mut again, mut added, mut task) = (false, false, None);
        for row in rows.iter().map(|row| self.fields(row)) {
            if row.has("again") {
                again = true;
            } else if row.has("added") {
                added = true;
            } else {
                added |= row.has("fresh");
                task = Some(row.task()?);
            }
        }
        Ok(match task {
            None => Asked::NoProject,
            Some(task) if added => Asked::New(task),
            Some(task) if again => Asked::Again(task),
            Some(task) => Asked::Existing(task),
        })
    }

    /// One task.
    pub async fn task(&self, id: &TaskId) -> Result<Option<Task>, StoreError> {
        let sql = Sql::new(concat!("select ", task_columns!(), " from tasks where id = $1"))
            .bind(id.to_string());
        let rows = self.read(sql).await?;
        rows.first().map(|row| self.fields(row).task()).transpose()
    }

    /// Tasks in a state, or all, the newest first.
    pub async fn tasks(&self, state: Option<TaskState>) -> Result<Vec<Task>, StoreError> {
        let sql = Sql::new(concat!(
            "select ",
            task_columns!(),
            " from tasks where $1 is null or state = $1
            order by created_at desc, slug, number desc, lane"
        ))
        .bind(state.map(TaskState::as_str));
        self.read(sql).await?.iter().map(|row| self.fields(row).task()).collect()
    }

    /// The same for a list: without their texts, and of a title the first 300 characters.
    pub async fn task_lines(&self, state: Option<TaskState>) -> Result<Vec<Task>, StoreError> {
        let text = concat!(
            "select ",
            task_columns!(),
            " from tasks where $1 is null or state = $1
            order by created_at desc, slug, number desc, lane"
        )
        .replace("tasks.body", "'' as body")
        .replace("tasks.title", "substr(tasks.title, 1, 300) as title");
        let sql = Sql::made(text).bind(state.map(TaskState::as_str));
        self.read(sql).await?.iter().map(|row| self.fields(row).task()).collect()
    }

    /// Tasks of a project that the forge may still have a word about, the oldest first.
    pub async fn open_tasks(&self, slug: &RepoName) -> Result<Vec<Task>, StoreError> {
        let sql = Sql::new(concat!(
            "select ",
            task_columns!(),
            " from tasks where slug = $1 and state not in ('failed', 'done', 'cancelled')
            order by created_at, number, lane"
        ))
        .bind(slug.to_string());
        self.read(sql).await?.iter().map(|row| self.fields(row).task()).collect()
    }

    /// What the queued tasks ask of a worker, in the order in which they are claimed: of each lane
    /// of each project the oldest `most`, so that a long queue is not read whole. What a budget
    /// stops at `now` asks nothing.
    pub async fn needs(&self, most: u32, now: Timestamp) -> Result<Vec<Need>, StoreError> {
        let sql = Sql::made(needs_text(NEEDS_SQLITE))
            .postgres(needs_text(NEEDS_POSTGRES))
            .bind(i64::from(most))
            .bind(now.0);
        let rows = self.read(sql).await?;
        let need = |row: &AnyRow| {
            let row = self.fields(row);
            Ok(Need {
                task: row.parsed("id")?,
                lane: row.parsed("lane")?,
                labels: row.labels("required_labels")?,
                forge: row.word("forge")?,
                host: row.text("host")?,
            })
        };
        rows.iter().map(need).collect()
    }
}

/// A wish for a task that is there.
const AGAIN: &str = "-- A wish for a task under way is met by it, also once it has ended.
    update tasks set seen_at = $7
    where slug = $1 and number = $2 and lane = $3 and seen_at < $7
      and state not in ('review', 'failed', 'done', 'cancelled');
    update tasks set state = 'queued', request_epoch = epoch, retries = 0,
        deaths_from = epoch, parked_until = null, stop_reason = null, message = null, title = $4, body = $5,
        asked_by = $6, seen_at = $7, asked_at = $8, updated_at = $8
    where slug = $1 and number = $2 and lane = $3
      and state in ('review', 'failed', 'done', 'cancelled')
      and seen_at < $7
      -- An end that lies ahead of us was stamped before the clock went back.
      and (updated_at < $7 or updated_at > $8)
    returning id as again;
    insert into events (at, kind, actor, task_id, data)
        select $8, 'task.queued', $9, id, '{\"why\":\"again\"}' from tasks
        where slug = $1 and number = $2 and lane = $3 and changes() = 1;
";

/// A wish for a task that is not there yet, and the task as it is then.
const ADDED: &str = concat!(
    "insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at,
        asked_at, created_at, updated_at)
    select p.slug || '#' || coalesce($2, p.next_number) || case when exists (
            select 1 from tasks o
            where o.slug = p.slug and o.number = coalesce($2, p.next_number)
        ) then ':' || $3 else '' end,
        p.slug, coalesce($2, p.next_number), $3, 'queued', $4, $5, $6, $7, $8, $8, $8
    from projects p where p.slug = $1
    on conflict (slug, number, lane) do nothing
    returning id as added;
    insert into events (at, kind, actor, task_id, data)
        select $8, 'task.queued', $9, id, '{\"why\":\"new\"}' from tasks
        where slug = $1 and lane = $3 and changes() = 1
          and number = coalesce($2, (select next_number from projects where slug = $1));
    select ",
    task_columns!(),
    " from tasks where slug = $1 and lane = $3
        and number = coalesce($2, (select next_number from projects where slug = $1));
    update projects set next_number = coalesce($2, next_number) + 1
    where slug = $1 and next_number <= coalesce($2, next_number)"
);

/// The same for a task without an issue, as one statement. The project's row is locked before its
/// counter is read, so that each of those who ask together gets a number of its own.
const ADDED_POSTGRES: &str = concat!(
    "with p as materialized (
        select slug, coalesce($2::bigint, next_number) as number
        from projects where slug = $1 for update
    ), added as (
        insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at,
            asked_at, created_at, updated_at)
        select p.slug || '#' || p.number || case when exists (
                select 1 from tasks o where o.slug = p.slug and o.number = p.number
            ) then ':' || $3 else '' end,
            p.slug, p.number, $3, 'queued', $4, $5, $6, $7, $8, $8, $8
        from p
        returning *
    ), told as (
        insert into events (at, kind, actor, task_id, data)
            select $8, 'task.queued', $9, id, '{\"why\":\"new\"}' from added
    ), counted as (
        update projects set next_number = p.number + 1
        from p where projects.slug = p.slug and projects.next_number <= p.number
    )
    select 1 as fresh, ",
    task_columns!(),
    " from added as tasks"
);

/// The oldest tasks of a class.
pub(super) const NEEDS_SQLITE: &str = "cross join tasks on tasks.id in (
        select t.id from tasks t
        where t.state = 'queued' and t.lane = c.lane and t.slug = c.slug
        order by t.asked_at, t.number limit $1)";

/// The same: Postgres takes no limit that depends on another row in such a place.
pub(super) const NEEDS_POSTGRES: &str = "cross join lateral (
        select t.id, t.asked_at, t.slug, t.number from tasks t
        where t.state = 'queued' and t.lane = c.lane and t.slug = c.slug
        order by t.asked_at, t.number limit $1) as tasks";

/// A class is a lane of a project that has queued tasks. The classes are found one by one in an
/// index, and what is the same for all tasks of one is looked up once.
pub(super) fn needs_text(oldest: &str) -> String {
    format!(
        "with recursive lanes (lane) as (
            select min(lane) from tasks where state = 'queued'
            union all
            select (select min(t.lane) from tasks t where t.state = 'queued' and t.lane > l.lane)
            from lanes l where l.lane is not null
        ), classes (lane, slug) as (
            select l.lane, (
                select min(t.slug) from tasks t where t.state = 'queued' and t.lane = l.lane)
            from lanes l where l.lane is not null
            union all
            select c.lane, (
                select min(t.slug) from tasks t
                where t.state = 'queued' and t.lane = c.lane and t.slug > c.slug)
            from classes c where c.slug is not null
        )
        select tasks.id, c.lane, c.forge, c.host, c.required_labels
        from (
            select q.lane, q.slug, p.forge, p.host,
                (select r.value from preferences r
                 where r.key = 'lane.labels'
                   and r.slug in ('', q.slug) and r.lane in ('', q.lane)
                 order by r.rank desc limit 1) as required_labels
            from classes q join projects p on p.slug = q.slug
            where not {no_budget_left}
        ) as c
        {oldest}
        order by tasks.asked_at, tasks.slug, tasks.number",
        no_budget_left = no_budget_left!("$2"),
    )
}
