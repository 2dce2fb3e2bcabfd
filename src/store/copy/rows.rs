//! The rows of one table: read in order, written in batches, and summed up.

use std::fmt;

use futures_util::TryStreamExt;
use ring::digest::{Context, SHA256};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::schema::{Column, Kind, Table};
use super::{CopyError, Side};
use crate::store::sql::Arg;

/// Rows written by one statement, and the bytes of text after which it is sent sooner.
const BATCH_ROWS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// SQLite takes 32,766 parameters, Postgres 65,535.
const PARAMETERS: usize = 30_000;

/// How often somebody is told.
const TELL_EVERY: u64 = 1000;

/// The rows of a table in one value: the same rows give the same, whatever database holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many there are.
    pub rows: u64,
    /// SHA-256 over their values in the order of the key, in hexadecimal.
    pub hash: String,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows ({})", self.rows, self.hash.get(..12).unwrap_or(&self.hash))
    }
}

/// Copies the rows and sums up what was read.
pub(super) async fn copy(
    source: &mut Side,
    target: &mut Side,
    table: &Table,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<Sum, CopyError> {
    let most = (PARAMETERS / table.columns.len().max(1)).clamp(1, BATCH_ROWS);
    let mut summing = Summing::new(tell);
    let mut batch = Batch::default();
    let path = source.name.clone();
    let mut rows = sqlx::query(AssertSqlSafe(table.select())).fetch(&mut source.connection);
    loop {
        let row = rows.try_next().await;
        let Some(row) = row.map_err(|e| explain(&path, source.postgres, e))? else { break };
        let values = values(&row, table, &path)?;
        let nul = |arg: &Arg| matches!(arg, Arg::Text(Some(text)) if text.contains('\0'));
        if let Some(at) = values.iter().position(nul).filter(|_| target.postgres) {
            return Err(CopyError::Nul {
                path,
                table: table.name.clone(),
                row: key(&values, table),
                column: table.columns.get(at).map(|c| c.name.clone()).unwrap_or_default(),
            });
        }
        summing.add(&values);
        batch.add(values);
        if batch.rows >= most || batch.bytes >= BATCH_BYTES {
            let sent = batch.send(&mut target.connection, target.postgres, table).await;
            sent.map_err(|e| explain(&target.name, target.postgres, e))?;
        }
    }
    let sent = batch.send(&mut target.connection, target.postgres, table).await;
    sent.map_err(|e| explain(&target.name, target.postgres, e))?;
    Ok(summing.end())
}

/// Sums up the rows that are there.
pub(super) async fn sum(
    side: &mut Side,
    table: &Table,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<Sum, CopyError> {
    let mut summing = Summing::new(tell);
    let mut rows = sqlx::query(AssertSqlSafe(table.select())).fetch(&mut side.connection);
    loop {
        let row = rows.try_next().await;
        let Some(row) = row.map_err(|e| explain(&side.name, side.postgres, e))? else { break };
        summing.add(&values(&row, table, &side.name)?);
    }
    Ok(summing.end())
}

fn explain(name: &str, postgres: bool, error: sqlx::Error) -> CopyError {
    use crate::store::error;
    CopyError::Store(if postgres {
        error::explain_postgres(name, &error)
    } else {
        error::explain(name, error)
    })
}

/// The values of a row, in the order of the table's columns.
fn values(row: &AnyRow, table: &Table, path: &str) -> Result<Vec<Arg>, CopyError> {
    let read = |at: usize, kind: Kind| match kind {
        Kind::Text => row.try_get(at).map(Arg::Text),
        Kind::Int => row.try_get(at).map(Arg::Int),
        Kind::Real | Kind::Other => row.try_get(at).map(Arg::Real),
    };
    let mut values = Vec::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        values.push(read(at, column.kind).map_err(|error| CopyError::Unreadable {
            path: path.to_owned(),
            table: table.name.clone(),
            row: key(&values, table),
            column: column.name.clone(),
            detail: error.to_string(),
        })?);
    }
    Ok(values)
}

/// The row's key for a person, as far as it was read.
fn key(values: &[Arg], table: &Table) -> String {
    let of = |name: &String| {
        let at = table.columns.iter().position(|c| c.name == *name)?;
        Some(match values.get(at)? {
            Arg::Text(value) => format!("{:?}", value.clone().unwrap_or_default()),
            Arg::Int(value) => value.unwrap_or_default().to_string(),
            Arg::Real(value) => value.unwrap_or_default().to_string(),
        })
    };
    let parts: Vec<String> = table.key.iter().filter_map(of).collect();
    format!("({})", parts.join(", "))
}

/// The hash as it grows.
struct Summing<'a> {
    rows: u64,
    context: Context,
    tell: &'a mut (dyn FnMut(u64) + Send),
}

impl<'a> Summing<'a> {
    fn new(tell: &'a mut (dyn FnMut(u64) + Send)) -> Self {
        Self { rows: 0, context: Context::new(&SHA256), tell }
    }

    /// Each value with its kind and length, so that no two rows read alike.
    fn add(&mut self, values: &[Arg]) {
        for value in values {
            match value {
                Arg::Text(Some(text)) => {
                    self.context.update(format!("t{}:", text.len()).as_bytes());
                    self.context.update(text.as_bytes());
                }
                Arg::Int(Some(n)) => self.context.update(format!("i{n};").as_bytes()),
                // SQLite keeps no sign of a zero.
                Arg::Real(Some(x)) => {
                    let bits = if *x == 0.0 { 0 } else { x.to_bits() };
                    self.context.update(format!("r{bits};").as_bytes());
                }
                Arg::Text(None) | Arg::Int(None) | Arg::Real(None) => self.context.update(b"n"),
            }
        }
        self.context.update(b"\n");
        self.rows += 1;
        if self.rows.is_multiple_of(TELL_EVERY) {
            (self.tell)(TELL_EVERY);
        }
    }

    fn end(self) -> Sum {
        (self.tell)(self.rows % TELL_EVERY);
        let hash = self.context.finish().as_ref().iter().map(|b| format!("{b:02x}")).collect();
        Sum { rows: self.rows, hash }
    }
}

/// Rows that wait to be written.
#[derive(Debug, Default)]
struct Batch {
    rows: usize,
    bytes: usize,
    values: Vec<Arg>,
}

impl Batch {
    fn add(&mut self, values: Vec<Arg>) {
        self.rows += 1;
        let bytes = |arg: &Arg| match arg {
            Arg::Text(Some(text)) => text.len(),
            _ => 8,
        };
        self.bytes += values.iter().map(bytes).sum::<usize>();
        self.values.extend(values);
    }

    async fn send(
        &mut self,
        connection: &mut AnyConnection,
        postgres: bool,
        table: &Table,
    ) -> Result<(), sqlx::Error> {
        let Self { rows, values, .. } = std::mem::take(self);
        if rows == 0 {
            return Ok(());
        }
        let width = table.columns.len();
        let names: Vec<String> = table.columns.iter().map(|c| c.quoted()).collect();
        // SQLite looks a numbered parameter up among all of them each time.
        // In a list of rows Postgres has to be told what a null would have been.
        let parameter = |row: usize, (at, column): (usize, &Column)| match (postgres, column.kind) {
            (false, _) => "?".to_owned(),
            (true, Kind::Text) => format!("cast(${} as text)", row * width + at + 1),
            (true, Kind::Int) => format!("cast(${} as bigint)", row * width + at + 1),
            (true, _) => format!("cast(${} as double precision)", row * width + at + 1),
        };
        let tuple = |row: usize| {
            let columns = table.columns.iter().enumerate();
            let at: Vec<String> = columns.map(|column| parameter(row, column)).collect();
            format!("({})", at.join(","))
        };
        let tuples: Vec<String> = (0..rows).map(tuple).collect();
        let (name, names, tuples) = (table.quoted(), names.join(","), tuples.join(","));
        let text = format!("insert into {name} ({names}) values {tuples}");
        // Planned anew for each batch: which of its values are null differs.
        let query = sqlx::query(AssertSqlSafe(text)).persistent(false);
        let query = values.into_iter().fold(query, |query, arg| match arg {
            Arg::Text(value) => query.bind(value),
            Arg::Int(value) => query.bind(value),
            Arg::Real(value) => query.bind(value),
        });
        query.execute(connection).await.map(|_| ())
    }
}
