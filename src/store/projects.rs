//! Linked repositories, and the pull requests of local ones.

use super::row::word_text;
use super::{LocalPullRow, Sql, Store, StoreError};
use crate::model::{Project, RepoName, TaskId};

impl Store {
    /// Links a repository, or brings its row up to date; when it was linked stays.
    pub async fn link(&self, project: &Project) -> Result<Project, StoreError> {
        let sql = Sql::new(
            "insert into projects (slug, forge, host, remote, api_base, default_branch, linked_at)
            values ($1, $2, $3, $4, $5, $6, $7)
            on conflict (slug) do update set forge = excluded.forge, host = excluded.host,
                remote = excluded.remote, api_base = excluded.api_base,
                default_branch = excluded.default_branch
            returning slug, forge, host, remote, api_base, default_branch, linked_at",
        )
        .bind(project.slug.to_string())
        .bind(word_text(&project.forge))
        .bind(project.host.clone())
        .bind(project.remote.clone())
        .bind(project.api_base.clone())
        .bind(project.default_branch.clone())
        .bind(project.linked_at.0);
        let rows = self.write(sql).await?;
        rows.first().map_or_else(|| Ok(project.clone()), |row| self.fields(row).project())
    }

    /// Every linked repository, by slug.
    pub async fn projects(&self) -> Result<Vec<Project>, StoreError> {
        let sql = Sql::new(
            "select slug, forge, host, remote, api_base, default_branch, linked_at
            from projects order by slug",
        );
        self.read(sql).await?.iter().map(|row| self.fields(row).project()).collect()
    }

    /// One linked repository.
    pub async fn project(&self, slug: &RepoName) -> Result<Option<Project>, StoreError> {
        let sql = Sql::new(
            "select slug, forge, host, remote, api_base, default_branch, linked_at
            from projects where slug = $1",
        )
        .bind(slug.to_string());
        let rows = self.read(sql).await?;
        rows.first().map(|row| self.fields(row).project()).transpose()
    }

    /// The pull request of a task of a local repository.
    pub async fn local_pull(&self, id: &TaskId) -> Result<Option<LocalPullRow>, StoreError> {
        let sql = Sql::new(
            "select number, title, body, branch, base, head, diff, comment
            from local_pulls where task_id = $1",
        )
        .bind(id.to_string());
        let rows = self.read(sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let row = self.fields(row);
        Ok(Some(LocalPullRow {
            number: row.count("number")?.unwrap_or_default(),
            title: row.text("title")?,
            body: row.text("body")?,
            branch: row.text("branch")?,
            base: row.text("base")?,
            head: row.text("head")?,
            diff: row.text("diff")?,
            comment: row.optional_text("comment")?,
        }))
    }
}
