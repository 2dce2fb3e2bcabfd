//! A text of several statements taken apart: Postgres takes one a call, and numbers the parameters
//! of each from one.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe};

use crate::store::sql::{Arg, Sql, storable};

/// Rows that the write before this statement touched, as SQLite says it.
const CHANGES: &str = "changes()";

/// One statement with what is bound to it.
#[derive(Debug)]
pub(super) struct Statement {
    text: String,
    args: Vec<Arg>,
    /// Whether the last parameter is to be the number of rows that the write before it touched.
    counts: bool,
    /// Whether it is a write: what follows may ask how many rows it touched.
    pub(super) writes: bool,
}

/// The statements of `sql`, or the one that it has for Postgres.
pub(super) fn statements(sql: &Sql) -> Vec<Statement> {
    match sql.postgres_text() {
        Some(text) => vec![Statement {
            text: text.to_owned(),
            args: sql.args().to_vec(),
            counts: false,
            writes: true,
        }],
        None => split(sql.text()).iter().map(|text| Statement::of(text, sql.args())).collect(),
    }
}

impl Statement {
    /// A text of its own with what is bound to it.
    pub(super) const fn whole(text: String, args: Vec<Arg>) -> Self {
        Self { text, args, counts: false, writes: true }
    }

    /// Numbers the parameters that `text` uses from one, in the order of their numbers.
    fn of(text: &str, all: &[Arg]) -> Self {
        let mut used = Vec::new();
        let _ = with_numbers(text, |number| {
            used.push(number);
            number
        });
        used.sort_unstable();
        used.dedup();
        let mut renumbered =
            with_numbers(text, |number| used.partition_point(|other| *other < number) + 1);
        let counts = renumbered.contains(CHANGES);
        if counts {
            renumbered = renumbered.replace(CHANGES, &format!("${}", used.len() + 1));
        }
        let first = renumbered.split_whitespace().next().unwrap_or_default();
        let writes = matches!(first, "insert" | "update" | "delete");
        let bound = used.iter().filter_map(|n| all.get(n - 1)).cloned().collect();
        Self { text: renumbered, args: bound, counts, writes }
    }

    /// To be sent, after a write that touched so many rows.
    pub(super) fn query(&self, changes: i64) -> Query<'static, Any, AnyArguments> {
        let query = sqlx::query(AssertSqlSafe(self.text.clone()));
        let query = self.args.iter().fold(query, |query, arg| match arg {
            Arg::Text(value) => {
                query.bind(value.as_deref().map(|text| storable(text).into_owned()))
            }
            Arg::Int(value) => query.bind(*value),
            // As text: a null would be sent as another type than a number, and the statement that
            // the server has prepared takes one type. The texts say `cast(… as double precision)`.
            Arg::Real(value) => query.bind(value.map(|value| value.to_string())),
        });
        if self.counts { query.bind(changes) } else { query }
    }
}

/// The statements of a text, without comments. A semicolon in quotes ends none.
fn split(text: &str) -> Vec<String> {
    let (mut all, mut statement, mut quoted) = (Vec::new(), String::new(), false);
    for line in text.lines().filter(|line| !line.trim_start().starts_with("--")) {
        for letter in line.chars() {
            quoted ^= letter == '\'';
            if letter == ';' && !quoted {
                all.push(std::mem::take(&mut statement));
            } else {
                statement.push(letter);
            }
        }
        statement.push('\n');
    }
    all.push(statement);
    all.iter().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect()
}

/// The text with another number for each of its parameters.
fn with_numbers(text: &str, mut other: impl FnMut(usize) -> usize) -> String {
    let mut parts = text.split('$');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        made.push('$');
        if let Ok(number) = number.parse() {
            made.push_str(&other(number).to_string());
        }
        made.push_str(rest);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statement_has_its_own_numbers() {
        let sql = Sql::new(
            "update t set a = $3 where b = $12;
            -- a word; more
            insert into e select $1, ';$' from t where a = $3 and changes() = 1",
        );
        let sql = (1..=12).fold(sql, |sql, n: i64| sql.bind(n));
        let found = statements(&sql);
        let texts: Vec<&str> = found.iter().map(|s| s.text.as_str()).collect();
        assert_eq!(texts[0], "update t set a = $1 where b = $2");
        assert_eq!(found[0].args, [Arg::Int(Some(3)), Arg::Int(Some(12))]);
        assert_eq!(texts[1], "insert into e select $1, ';$' from t where a = $2 and $3 = 1");
        assert_eq!(found[1].args, [Arg::Int(Some(1)), Arg::Int(Some(3))]);
        assert!(found[1].counts && !found[0].counts);
        assert_eq!(found.len(), 2);
    }
}
