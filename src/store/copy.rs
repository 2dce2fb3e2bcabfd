//! All of one database into another, empty one: SQLite to Postgres, or any other way round.
//!
//! The tables and columns are those that the two databases say they have, so no migration can be
//! forgotten here. The target is written in one transaction, which is kept only where each table,
//! read back, has the same number of rows and the same hash as the source.

mod rows;
mod schema;

use std::path::Path;

use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions, Connection, Row};

use super::session::{Company, Session};
use super::{Store, StoreError, error, postgres, sqlite, without_login};
pub use rows::Sum;
use schema::{Kind, Table};

/// Why a database was not copied. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source is not there.
    #[error("there is no database `{path}`")]
    Missing {
        /// The file.
        path: String,
    },
    /// The target holds something.
    #[error("the database `{path}` is not empty: `{table}` has {rows} rows")]
    NotEmpty {
        /// The target.
        path: String,
        /// The first table with rows.
        table: String,
        /// How many.
        rows: i64,
    },
    /// A text that Postgres cannot hold. It is not changed on the way: nothing is lost unseen.
    #[error("`{table}` of `{path}`, row {row}: `{column}` holds a NUL byte, which Postgres cannot")]
    Nul {
        /// The source.
        path: String,
        /// Its table.
        table: String,
        /// The row's key.
        row: String,
        /// The column.
        column: String,
    },
    /// A value that is not of its column's type.
    #[error("`{table}` of `{path}`, row {row}: `{column}` cannot be read: {detail}")]
    Unreadable {
        /// The source.
        path: String,
        /// Its table.
        table: String,
        /// The row's key, as far as it can be read.
        row: String,
        /// The column.
        column: String,
        /// Why.
        detail: String,
    },
    /// The two databases have not the same tables and columns.
    #[error("the databases are not of the same make: {detail}")]
    Schema {
        /// The first difference.
        detail: String,
    },
    /// What was written is not what was read.
    #[error("`{table}` differs after the copy: {from} in the source, {to} in the target")]
    Differs {
        /// The table.
        table: String,
        /// Of the source.
        from: Sum,
        /// Of the target.
        to: Sum,
    },
    /// A database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CopyError {
    /// For a person: what helps.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } => {
                Some("sqlite:///absolute/path of a relay.db, or postgres://…".to_owned())
            }
            Self::NotEmpty { .. } => Some(
                "name a new database (`createdb NAME`), or a file that is not there".to_owned(),
            ),
            Self::Nul { .. } => Some(
                "docs/DATABASES.md, \"Copy to another database\", has the statement that takes it out"
                    .to_owned(),
            ),
            Self::Store(cause) => cause.hint(),
            Self::Unreadable { .. } | Self::Schema { .. } | Self::Differs { .. } => None,
        }
    }
}

/// One table that was copied: the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The table.
    pub table: String,
    /// Read from the source.
    pub from: Sum,
    /// Read back from the target.
    pub to: Sum,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStep<'a> {
    /// The table that is copied or read back.
    pub table: &'a str,
    /// Rows handled so far, of all tables, on both sides.
    pub done: u64,
    /// How many there are.
    pub of: u64,
}

/// Copies everything of `from` into the empty `to`, both named as for [`Store::open`], which
/// brings both up to date first. Nobody else may be at work on either; a site on Postgres is found
/// by its lock.
///
/// # Errors
/// See [`CopyError`]; the target is then as it was, but for its empty tables.
pub async fn copy(
    from: &str,
    to: &str,
    tell: &mut (dyn FnMut(CopyStep<'_>) + Send),
) -> Result<Vec<Copied>, CopyError> {
    if let Some(path) = from.strip_prefix("sqlite://").filter(|path| !Path::new(path).exists()) {
        return Err(CopyError::Missing { path: path.to_owned() });
    }
    for url in [from, to] {
        Store::open(url).await?.close().await;
    }
    let mut source = Side::open(from).await?;
    let mut target = Side::open(to).await?;
    let tables = same(source.tables().await?, target.tables().await?)?;
    source.begin(false).await?;
    target.begin(true).await?;
    let mut of = 0;
    for table in &tables {
        let rows = target.count(table).await?;
        if rows != 0 {
            let (path, table) = (target.name, table.name.clone());
            return Err(CopyError::NotEmpty { path, table, rows });
        }
        of += 2 * u64::try_from(source.count(table).await?).unwrap_or_default();
    }
    let mut copied = Vec::new();
    let mut done = 0;
    for table in &tables {
        let mut tell = |rows: u64| {
            done += rows;
            tell(CopyStep { table: &table.name, done, of });
        };
        let from = rows::copy(&mut source, &mut target, table, &mut tell).await?;
        target.number_on(table).await?;
        let to = rows::sum(&mut target, table, &mut tell).await?;
        let table = table.name.clone();
        if from != to {
            return Err(CopyError::Differs { table, from, to });
        }
        copied.push(Copied { table, from, to });
    }
    target.run("commit").await?;
    source.run("rollback").await?;
    source.close().await;
    target.close().await;
    Ok(copied)
}

/// One of the two databases. Dropped in a transaction it leaves nothing behind.
#[derive(Debug)]
struct Side {
    connection: AnyConnection,
    /// On Postgres: no site is at work.
    lock: Option<Session>,
    /// For messages.
    name: String,
    postgres: bool,
}

impl Side {
    async fn open(url: &str) -> Result<Self, CopyError> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            let connected = sqlite::connect(&sqlite::options(path)?).await;
            let connection = connected.map_err(|e| error::explain(path, e))?;
            return Ok(Self { connection, lock: None, name: path.to_owned(), postgres: false });
        }
        let name = without_login(url);
        let lock = Some(Session::open(url, Company::Alone, "").await?);
        let options = postgres::options(url, &name)?;
        let connected = options.connect().await;
        let connection = connected.map_err(|e| error::explain_postgres(&name, &e))?;
        Ok(Self { connection, lock, name, postgres: true })
    }

    /// Begins the one transaction. Meanwhile no other writes: in SQLite nobody can, and in
    /// Postgres a writer that takes no notice of the lock is at least not seen.
    async fn begin(&mut self, writes: bool) -> Result<(), CopyError> {
        match (self.postgres, writes) {
            (false, _) => self.run("begin immediate").await,
            (true, false) => self.run("begin isolation level repeatable read read only").await,
            (true, true) => {
                self.run("begin").await?;
                self.run("lock table write_turn in exclusive mode").await
            }
        }
    }

    async fn run(&mut self, text: &'static str) -> Result<(), CopyError> {
        let done = sqlx::raw_sql(text).execute(&mut self.connection).await;
        done.map(|_| ()).map_err(|e| self.explain(e))
    }

    async fn tables(&mut self) -> Result<Vec<Table>, CopyError> {
        let read = schema::read(&mut self.connection, self.postgres).await;
        read.map_err(|e| self.explain(e))
    }

    async fn count(&mut self, table: &Table) -> Result<i64, CopyError> {
        let text = format!("select count(*) from {}", table.quoted());
        let row = sqlx::query(AssertSqlSafe(text)).fetch_one(&mut self.connection).await;
        row.and_then(|row| row.try_get(0)).map_err(|e| self.explain(e))
    }

    /// Where Postgres numbers a column by itself, it goes on after the highest.
    async fn number_on(&mut self, table: &Table) -> Result<(), CopyError> {
        for column in table.columns.iter().filter(|c| self.postgres && c.grows) {
            let (name, column) = (table.quoted(), column.quoted());
            let text = format!(
                "select setval(pg_get_serial_sequence('{name}', '{}'), m) \
                 from (select max({column}) as m from {name}) as top where m is not null",
                column.trim_matches('"'),
            );
            let done = sqlx::query(AssertSqlSafe(text)).fetch_optional(&mut self.connection).await;
            done.map_err(|e| self.explain(e))?;
        }
        Ok(())
    }

    fn explain(&self, error: sqlx::Error) -> CopyError {
        CopyError::Store(if self.postgres {
            error::explain_postgres(&self.name, &error)
        } else {
            error::explain(&self.name, error)
        })
    }

    async fn close(self) {
        let _ = self.connection.close().await;
        if let Some(lock) = self.lock {
            lock.close().await;
        }
    }
}

/// The tables of both, parents before children, with the columns in the order of the source.
fn same(from: Vec<Table>, to: Vec<Table>) -> Result<Vec<Table>, CopyError> {
    let differ = |detail: String| Err(CopyError::Schema { detail });
    let names = |tables: &[Table]| tables.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    if names(&from) != names(&to) {
        return differ(format!("tables {:?} and {:?}", names(&from), names(&to)));
    }
    let mut both = Vec::new();
    for (mut a, b) in from.into_iter().zip(to) {
        if a.shape() != b.shape() {
            return differ(format!("`{}` has columns {:?} and {:?}", a.name, a.shape(), b.shape()));
        }
        if let Some(odd) = a.columns.iter().find(|c| c.kind == Kind::Other) {
            return differ(format!("`{}.{}` is of a kind that is not copied", a.name, odd.name));
        }
        for column in &mut a.columns {
            column.grows |= b.columns.iter().any(|c| c.name == column.name && c.grows);
        }
        // A reference that only one of the two looks after is one all the same.
        a.parents.extend(b.parents);
        both.push(a);
    }
    schema::in_order(both)
}
