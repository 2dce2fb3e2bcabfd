//! One route: what it is called, who may, what it takes and gives. The router and the OpenAPI
//! document are both made from the same values, so that neither knows a route the other does not.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::answer::Json;
use super::caller::Caller;
use super::extract::{Asked, Body, From, OfProject, OfTask, OfToken, OfWorker, Own};
use super::problem::Answer;
use super::state::Site;
use crate::api::{Code, PREFIX};
use crate::model::TokenScope;

/// How long a handler may take. Less than a client waits, so that it is told; the slowest one asks
/// a forge.
pub(super) const TIME: Duration = Duration::from_secs(55);

/// The longest body, in bytes.
pub(super) const BODY_MAX: usize = 1024 * 1024;

/// Makes the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route.
#[derive(Debug)]
pub(super) struct Route {
    pub method: Method,
    /// From the root, as axum writes it.
    pub path: String,
    /// Any of these scopes will do; with none, nobody has to say who asks.
    pub scopes: &'static [TokenScope],
    /// One sentence for the reader of the document.
    pub says: &'static str,
    /// The codes that are this route's own, besides those of every route.
    pub refuses: &'static [Code],
    pub body_max: usize,
    pub time: Duration,
    /// Whether it counts how often it is asked; a probe is told the truth however many ask.
    pub paced: bool,
    pub takes: Operation,
    handler: MethodRouter<Arc<Site>>,
}

/// What a handler's own types say about its route.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// The names in the path, as its extractors read them.
    pub of: Option<Subject>,
    pub query: Option<SchemaOf>,
    pub body: Option<SchemaOf>,
    pub gives: Gives,
}

/// What the path of a route names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Task,
    Project,
    Worker,
    Token,
}

/// What a handler answers when all goes well.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Gives {
    /// 204.
    #[default]
    Nothing,
    /// 200 with JSON.
    Json(SchemaOf),
    /// 200 with text of this type.
    Text(&'static str),
}

impl Route {
    /// `GET` under the API's prefix.
    pub fn get<H: Handler<T, Arc<Site>> + Described<D>, T: 'static, D>(
        path: &str,
        handler: H,
    ) -> Self {
        Self::new::<H, T, D>(Method::GET, format!("{PREFIX}{path}"), handler)
    }

    /// `POST` under the API's prefix.
    pub fn post<H: Handler<T, Arc<Site>> + Described<D>, T: 'static, D>(
        path: &str,
        handler: H,
    ) -> Self {
        Self::new::<H, T, D>(Method::POST, format!("{PREFIX}{path}"), handler)
    }

    /// The same outside of the prefix.
    pub fn new<H: Handler<T, Arc<Site>> + Described<D>, T: 'static, D>(
        method: Method,
        path: String,
        handler: H,
    ) -> Self {
        let mut takes = Operation::default();
        H::describe(&mut takes);
        let filter = match method {
            Method::GET => MethodFilter::GET,
            _ => MethodFilter::POST,
        };
        Self {
            method,
            path,
            scopes: &[],
            says: "",
            refuses: &[],
            body_max: BODY_MAX,
            time: TIME,
            paced: true,
            takes,
            handler: on(filter, handler),
        }
    }

    /// Who may: the bearers of any of these scopes.
    pub fn may(mut self, scopes: &'static [TokenScope]) -> Self {
        self.scopes = scopes;
        self
    }

    /// What it is for, in one sentence.
    pub fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    /// The codes that are its own.
    pub fn refuses(mut self, codes: &'static [Code]) -> Self {
        self.refuses = codes;
        self
    }

    /// A longer body than others take.
    pub fn body_max(mut self, bytes: usize) -> Self {
        self.body_max = bytes;
        self
    }

    /// More time than others take: the answer may be held.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Asked as often as anybody likes, by anybody.
    pub fn unpaced(mut self) -> Self {
        self.paced = false;
        self
    }

    /// Where the handler gives a bare response: what is in it.
    pub fn gives<T: JsonSchema>(mut self) -> Self {
        self.takes.gives = Gives::Json(schema_of::<T>);
        self
    }

    /// The same for text.
    pub fn gives_text(mut self, kind: &'static str) -> Self {
        self.takes.gives = Gives::Text(kind);
        self
    }

    /// The route for axum. Who asks is checked in front of it, by the gate.
    pub fn into_axum(self) -> (String, MethodRouter<Arc<Site>>) {
        (self.path, self.handler)
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A handler whose arguments and answer describe themselves.
pub(super) trait Described<D> {
    /// Adds what they say.
    fn describe(operation: &mut Operation);
}

/// One argument of a handler.
pub(super) trait Takes {
    /// Adds what it says.
    fn describe(operation: &mut Operation);
}

/// A handler's answer.
pub(super) trait Answers {
    /// What it is.
    const GIVES: Gives;
}

macro_rules! described {
    ($($part:ident)*) => {
        impl<H, F, R, $($part),*> Described<($($part,)*)> for H
        where
            H: FnOnce($($part),*) -> F,
            F: Future<Output = R>,
            R: Answers,
            $($part: Takes,)*
        {
            fn describe(operation: &mut Operation) {
                $($part::describe(operation);)*
                operation.gives = R::GIVES;
            }
        }
    };
}
described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
described!(A B C D E);

/// Arguments that are no part of what a client sends.
macro_rules! unseen {
    ($($part:ty),*) => { $(impl Takes for $part { fn describe(_: &mut Operation) {} })* };
}
unseen!(Caller, From, Path<String>, State<Arc<Site>>, axum::http::HeaderMap);

impl<T: JsonSchema> Takes for Body<T> {
    fn describe(operation: &mut Operation) {
        operation.body = Some(schema_of::<T>);
    }
}

impl<T: JsonSchema> Takes for Own<T> {
    fn describe(operation: &mut Operation) {
        operation.body = Some(schema_of::<T>);
    }
}

impl<T: JsonSchema> Takes for Asked<T> {
    fn describe(operation: &mut Operation) {
        operation.query = Some(schema_of::<T>);
    }
}

macro_rules! subjects {
    ($($part:ty: $subject:ident),*) => {
        $(impl Takes for $part {
            fn describe(operation: &mut Operation) {
                operation.of = Some(Subject::$subject);
            }
        })*
    };
}
subjects!(OfTask: Task, OfProject: Project, OfWorker: Worker, OfToken: Token);

impl<T: JsonSchema> Answers for Json<T> {
    const GIVES: Gives = Gives::Json(schema_of::<T>);
}

impl Answers for StatusCode {
    const GIVES: Gives = Gives::Nothing;
}

/// A bare response says nothing about itself: its route does, with [`Route::gives`].
impl Answers for Response {
    const GIVES: Gives = Gives::Nothing;
}

impl<T: Answers> Answers for Answer<T> {
    const GIVES: Gives = T::GIVES;
}
