//! What tables a database has, as it says itself.

use std::collections::BTreeSet;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::CopyError;

/// Tables that are the database's own affair: the history of its schema, and the one that writers
/// take turns at.
const OWN: [&str; 2] = ["_sqlx_migrations", "write_turn"];

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// The primary key's columns, in its order.
    pub(super) key: Vec<String>,
    /// The tables its rows point at.
    pub(super) parents: BTreeSet<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Postgres numbers it by itself.
    pub(super) grows: bool,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Text,
    Int,
    Real,
    /// What no migration of relay's uses.
    Other,
}

impl Kind {
    fn of(declared: &str) -> Self {
        match declared.to_ascii_lowercase().as_str() {
            "text" => Self::Text,
            "integer" | "bigint" => Self::Int,
            "double precision" | "real" => Self::Real,
            _ => Self::Other,
        }
    }
}

impl Column {
    pub(super) fn quoted(&self) -> String {
        quoted(&self.name)
    }
}

impl Table {
    pub(super) fn quoted(&self) -> String {
        quoted(&self.name)
    }

    /// What has to be the same in both databases.
    pub(super) fn shape(&self) -> (BTreeSet<(String, Kind)>, &[String]) {
        (self.columns.iter().map(|c| (c.name.clone(), c.kind)).collect(), &self.key)
    }

    /// A reading of every row, in an order that both databases share.
    pub(super) fn select(&self) -> String {
        let list = |names: Vec<String>| names.join(", ");
        let all: Vec<String> = self.columns.iter().map(Column::quoted).collect();
        let key: Vec<String> = self.key.iter().map(|name| quoted(name)).collect();
        let order = if key.is_empty() { all.clone() } else { key };
        format!("select {} from {} order by {}", list(all), self.quoted(), list(order))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The tables, by name.
pub(super) async fn read(
    connection: &mut AnyConnection,
    postgres: bool,
) -> Result<Vec<Table>, sqlx::Error> {
    let ask = if postgres { POSTGRES } else { SQLITE };
    let mut tables = Vec::new();
    for row in rows(connection, ask.tables, None).await? {
        let name: String = row.try_get(0)?;
        if OWN.contains(&name.as_str()) {
            continue;
        }
        let mut columns = Vec::new();
        for row in rows(connection, ask.columns, Some(&name)).await? {
            let (declared, grows): (String, i64) = (row.try_get(1)?, row.try_get(2)?);
            let kind = Kind::of(&declared);
            columns.push(Column { name: row.try_get(0)?, kind, grows: grows != 0 });
        }
        let mut names = Vec::new();
        for ask in [ask.key, ask.parents] {
            let found = rows(connection, ask, Some(&name)).await?;
            names.push(found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?);
        }
        let (parents, key) = (names.pop().unwrap_or_default(), names.pop().unwrap_or_default());
        tables.push(Table { name, columns, key, parents: parents.into_iter().collect() });
    }
    Ok(tables)
}

/// Parents before children.
pub(super) fn in_order(mut tables: Vec<Table>) -> Result<Vec<Table>, CopyError> {
    let mut ordered: Vec<Table> = Vec::new();
    while !tables.is_empty() {
        let there = |name: &String| ordered.iter().any(|t| t.name == *name);
        let ready = |t: &Table| t.parents.iter().all(|p| *p == t.name || there(p));
        let (now, later): (Vec<Table>, Vec<Table>) = tables.into_iter().partition(ready);
        if now.is_empty() {
            let names: Vec<&str> = later.iter().map(|t| t.name.as_str()).collect();
            return Err(CopyError::Schema { detail: format!("{names:?} point at each other") });
        }
        ordered.extend(now);
        tables = later;
    }
    Ok(ordered)
}

/// The questions to one kind of database. But for the first, each is asked of one table.
#[derive(Clone, Copy)]
struct Questions {
    tables: &'static str,
    /// Name, type, whether the database numbers it.
    columns: &'static str,
    key: &'static str,
    parents: &'static str,
}

const SQLITE: Questions = Questions {
    tables: "select name from sqlite_master where type = 'table' and name not like 'sqlite%'
        order by name",
    columns: "select name, type, 0 from pragma_table_info($1) order by cid",
    key: "select name from pragma_table_info($1) where pk > 0 order by pk",
    parents: "select distinct \"table\" from pragma_foreign_key_list($1)",
};

/// Names are of a type of their own there, which the driver does not hand over.
const POSTGRES: Questions = Questions {
    tables: "select cast(relname as text) collate \"C\" from pg_class
        where relkind = 'r' and relnamespace = cast(current_schema() as regnamespace) order by 1",
    columns: "select cast(a.attname as text), format_type(a.atttypid, null),
            cast(case when a.attidentity <> '' then 1 else 0 end as bigint)
        from pg_attribute a
        where a.attrelid = cast($1 as regclass) and a.attnum > 0 and not a.attisdropped
        order by a.attnum",
    key: "select cast(a.attname as text)
        from pg_index i, unnest(i.indkey) with ordinality as k (attnum, place), pg_attribute a
        where i.indrelid = cast($1 as regclass) and i.indisprimary
            and a.attrelid = i.indrelid and a.attnum = k.attnum
        order by k.place",
    parents: "select distinct cast(p.relname as text)
        from pg_constraint c join pg_class p on p.oid = c.confrelid
        where c.conrelid = cast($1 as regclass) and c.contype = 'f'",
};

async fn rows(
    connection: &mut AnyConnection,
    text: &'static str,
    table: Option<&str>,
) -> Result<Vec<AnyRow>, sqlx::Error> {
    let query = sqlx::query(AssertSqlSafe(text));
    match table {
        Some(table) => query.bind(table.to_owned()).fetch_all(connection).await,
        None => query.fetch_all(connection).await,
    }
}
