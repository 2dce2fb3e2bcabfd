//! A statement, or several, as a value: the text and what is bound to it.
//!
//! A text holds neither `begin` nor `commit`: several statements in one text are one transaction,
//! and who runs it sees to that. So a write can be handed to a task, put beside others into one
//! transaction, and tried again.

use std::borrow::Cow;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe};

/// See the module. A parameter `$n` is the n-th value bound.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    text: Cow<'static, str>,
    postgres: Option<Cow<'static, str>>,
    grouped: bool,
    joint: Option<Joint>,
    args: Vec<Arg>,
}

/// A third text of the same meaning for Postgres: one statement for several askers, each a JSON
/// object in the array that is its first parameter. The statement gives each row the number of its
/// asker in the column `ask`, which it reads from the object.
#[derive(Clone, Debug)]
pub(super) struct Joint {
    /// The text.
    pub text: Cow<'static, str>,
    /// From the second parameter on: the same for all who ask together.
    pub shared: Vec<Arg>,
    /// This asker's object.
    pub ask: String,
    /// What it is about. Two about the same are never in one statement.
    pub about: String,
}

/// A bound value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arg {
    Text(Option<String>),
    Int(Option<i64>),
    Real(Option<f64>),
}

impl Sql {
    /// A text that stands in the code.
    pub(super) const fn new(text: &'static str) -> Self {
        Self {
            text: Cow::Borrowed(text),
            postgres: None,
            grouped: false,
            joint: None,
            args: Vec::new(),
        }
    }

    /// A text put together from parts that stand in the code; values are only ever bound.
    pub(super) const fn made(text: String) -> Self {
        Self {
            text: Cow::Owned(text),
            postgres: None,
            grouped: false,
            joint: None,
            args: Vec::new(),
        }
    }

    /// Another text of the same meaning for Postgres: one statement, which is one round trip and
    /// its own transaction.
    #[must_use]
    pub(super) fn postgres(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.postgres = Some(text.into());
        self
    }

    /// It may share a transaction on Postgres with such writes of other callers: it waits for no
    /// row that another of them may hold.
    #[must_use]
    pub(super) const fn grouped(mut self) -> Self {
        self.grouped = true;
        self
    }

    /// It may be one statement on Postgres with such writes of other callers, those of the same
    /// text and shared parameters.
    #[must_use]
    pub(super) fn joint(mut self, joint: Joint) -> Self {
        self.joint = Some(joint);
        self
    }

    /// Binds the next parameter.
    #[must_use]
    pub(super) fn bind(mut self, value: impl Into<Arg>) -> Self {
        self.args.push(value.into());
        self
    }

    /// Whether it has several statements.
    pub(super) fn is_several(&self) -> bool {
        self.text.contains(';')
    }

    /// Whether it may share a transaction.
    pub(super) const fn is_grouped(&self) -> bool {
        self.grouped && self.postgres.is_some()
    }

    /// How it is asked together with others, where it can be.
    pub(super) fn take_joint(&mut self) -> Option<Joint> {
        self.joint.take()
    }

    /// The statements of its text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The one statement for Postgres, where it has another.
    pub(super) fn postgres_text(&self) -> Option<&str> {
        self.postgres.as_deref()
    }

    /// What is bound.
    pub(super) fn args(&self) -> &[Arg] {
        &self.args
    }

    /// What runs on SQLite, which takes several statements with shared parameters in one call.
    /// `before` and `after` stand around the text.
    pub(super) fn for_sqlite(self, before: &str, after: &str) -> Query<'static, Any, AnyArguments> {
        let text = match (before, after, self.text) {
            ("", "", text) => text.into_owned(),
            (_, _, text) => format!("{before}{text}{after}"),
        };
        let query = sqlx::query(AssertSqlSafe(text));
        self.args.into_iter().fold(query, |query, arg| match arg {
            Arg::Text(value) => query.bind(value),
            Arg::Int(value) => query.bind(value),
            Arg::Real(value) => query.bind(value),
        })
    }
}

/// Postgres has no NUL in a text.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

macro_rules! binds {
    ($($from:ty => $kind:ident |$value:ident| $into:expr),* $(,)?) => {$(
        impl From<$from> for Arg {
            fn from($value: $from) -> Self {
                Self::$kind($into)
            }
        }
    )*};
}

binds! {
    String => Text |value| Some(value),
    &str => Text |value| Some(value.to_owned()),
    Option<String> => Text |value| value,
    Option<&str> => Text |value| value.map(str::to_owned),
    i64 => Int |value| Some(value),
    Option<i64> => Int |value| value,
    f64 => Real |value| Some(value),
    Option<f64> => Real |value| value,
}
