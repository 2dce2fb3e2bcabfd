//! What stands in front of every route: the request's id, what no route takes, the two versions, who
//! asks and may, the time a handler has, a panic, and the count for `/metrics`.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::caller::{Caller, Door, admit, held_by, identify};
use super::extract::Reading;
use super::limits::peer;
use super::metrics::Meter;
use super::problem::{Answer, Refusal, Said, rendered};
use super::route::{BODY_MAX, Route, TIME};
use super::state::Site;
use super::versions::{self, Dialect};
use crate::api::route::STATUS;
use crate::api::{Code, PREFIX, Problem, REQUEST_ID_HEADER, REVISION_HEADER, VERSION_HEADER};
use crate::model::TokenScope;

/// The longest path with its query, in bytes.
const URI_MAX: usize = 8 * 1024;

/// The headers of a request, names and values, in bytes.
const HEADERS_MAX: usize = 16 * 1024;

/// Ticks for a body to arrive: the longest one over a slow line.
const BODY_TICKS: u32 = 8;

/// The longest id that a request may bring.
const REQUEST_ID_MAX: usize = 64;

static REQUEST_ID: HeaderName = HeaderName::from_static(REQUEST_ID_HEADER);
static VERSION: HeaderName = HeaderName::from_static(VERSION_HEADER);
static REVISION: HeaderName = HeaderName::from_static(REVISION_HEADER);

/// The gate of one router.
#[derive(Debug)]
pub(super) struct Gate {
    site: Arc<Site>,
    door: Door,
    places: HashMap<String, Vec<Place>>,
    /// For what is no route, and for a method that a route does not take.
    nowhere: Place,
    /// The time in front of a request's number: no two sites and no two starts say the same id.
    start: String,
    requests: AtomicU64,
    version: HeaderValue,
    revision: HeaderValue,
}

/// A route, as the gate knows it.
#[derive(Debug)]
struct Place {
    method: Method,
    time: Duration,
    body_max: usize,
    /// Any of these scopes will do.
    scopes: &'static [TokenScope],
    paced: bool,
    meter: Arc<Meter>,
}

impl Gate {
    /// The gate in front of `routes`.
    pub fn new(site: Arc<Site>, door: Door, routes: &[Route]) -> Self {
        let mut places: HashMap<String, Vec<Place>> = HashMap::new();
        for route in routes {
            let meter = site.metrics.meter(&route.method, &route.path);
            let place = Place {
                method: route.method.clone(),
                time: route.time,
                body_max: route.body_max,
                scopes: route.scopes,
                paced: route.paced,
                meter,
            };
            places.entry(route.path.clone()).or_default().push(place);
        }
        let nowhere = Place {
            method: Method::GET,
            time: TIME,
            body_max: BODY_MAX,
            scopes: &[],
            paced: false,
            meter: site.metrics.meter(&Method::GET, ""),
        };
        let start = format!("{:x}", site.clock.now().0);
        let text = |text: &str| {
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        };
        let (version, revision) = (text(&site.version), HeaderValue::from(site.revision));
        let requests = AtomicU64::new(0);
        Self { site, door, places, nowhere, start, requests, version, revision }
    }

    /// Where a request goes: `nowhere` where there is no such route.
    ///
    /// # Errors
    /// The methods that its route takes, where this is none of them.
    fn place(&self, request: &Request) -> Result<&Place, &[Place]> {
        let Some(path) = request.extensions().get::<MatchedPath>() else {
            return Ok(&self.nowhere);
        };
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        // A handler runs where its scopes were found and nowhere else.
        let places = self.places.get(path.as_str()).map_or(&[][..], Vec::as_slice);
        places.iter().find(|place| place.method == *method).ok_or(places)
    }

    /// Lets a request on to its handler, where whoever asks may.
    async fn pass(
        &self,
        place: Result<&Place, &[Place]>,
        mut request: Request,
        next: Next,
    ) -> Response {
        let caller = match identify(&self.site, self.door, request.headers()).await {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        let place = match place {
            Ok(place) => place,
            Err(others) => return no_method(&request, others),
        };
        if let Err(refusal) = self.admit(place, &caller, &request) {
            return refusal.into_response();
        }
        DefaultBodyLimit::max(place.body_max).apply(&mut request);
        let held = match &caller {
            // A write goes on to its end; what is held for something to come does not.
            Caller::Bearer(bearer) if request.method() == Method::GET => Some(Arc::clone(bearer)),
            _ => None,
        };
        request.extensions_mut().insert(caller);
        match held {
            Some(bearer) => held_by(bearer, next.run(request)).await,
            None => next.run(request).await,
        }
    }

    fn admit(&self, place: &Place, caller: &Caller, request: &Request) -> Answer<()> {
        if place.paced || !place.scopes.is_empty() {
            let from = peer(request.extensions(), request.headers());
            self.site.rates.caller(caller, from)?;
        }
        admit(caller, place.scopes)
    }

    /// The id a request brought, where it is one, else a new one.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let sane = |id: &&HeaderValue| {
            let bytes = id.as_bytes();
            (1..=REQUEST_ID_MAX).contains(&bytes.len())
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
        };
        if let Some(brought) = headers.get(&REQUEST_ID).filter(sane) {
            return brought.clone();
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let door = if self.door == Door::Socket { "s" } else { "n" };
        HeaderValue::try_from(format!("{}-{door}{number}", self.start))
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }

    /// Refuses what no route takes; else the way the peer's words are to be read.
    fn look(&self, request: &Request) -> Result<Dialect, Refusal> {
        let uri = request.uri();
        let length = uri.path_and_query().map_or(0, |whole| whole.as_str().len());
        if length > URI_MAX {
            let detail = format!("the path and query are longer than {URI_MAX} bytes");
            return Err(too_large(StatusCode::URI_TOO_LONG, detail));
        }
        let headers: usize =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if headers > HEADERS_MAX {
            let detail = format!("the headers are longer than {HEADERS_MAX} bytes");
            return Err(too_large(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail));
        }
        // No text that is stored or compared holds one, and Postgres takes none.
        if uri.path_and_query().is_some_and(|whole| whole.as_str().contains("%00")) {
            return Err(Refusal::bad("the path or query holds a NUL character"));
        }
        let of_status = uri.path().strip_prefix(PREFIX) == Some(STATUS);
        versions::compare(&self.site, self.door, request.headers(), of_status)
    }

    /// What a failed request leaves in the log, and what of it a caller is told.
    fn settle(&self, said: &Said, id: &HeaderValue, place: &Place) -> Response {
        let mut problem = said.0.clone();
        let id = id.to_str().unwrap_or_default();
        if problem.code == Code::Internal {
            let (method, path) = (&place.method, place.meter.path());
            tracing::error!(request = id, %method, path, "{}", problem.detail);
            if self.door == Door::Network {
                // The cause may name files, statements and hosts of the site.
                problem.detail = format!("the site failed; its log says how, under `{id}`");
            }
        } else if problem.status >= 500 {
            tracing::debug!(request = id, status = problem.status, "{}", problem.detail);
        }
        rendered(&problem, Some(id))
    }
}

/// See the module.
pub(super) async fn gate(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = gate.site.clock.uptime();
    let id = gate.request_id(request.headers());
    let found = gate.place(&request);
    let place = found.unwrap_or(&gate.nowhere);
    let from = peer(request.extensions(), request.headers());
    gate.site.rates.look_for_proxy(request.extensions(), request.headers());
    // Who shows no token is counted on the way in.
    let shows = request.headers().contains_key(header::AUTHORIZATION);
    let mut response = match gate.look(&request) {
        Err(refusal) => refusal.into_response(),
        Ok(dialect) => {
            let body_time = gate.site.tick * BODY_TICKS;
            request.extensions_mut().insert(Reading { dialect, body_time });
            let run = AssertUnwindSafe(gate.pass(found, request, next)).catch_unwind();
            match tokio::time::timeout(place.time, run).await {
                Ok(Ok(response)) => response,
                // The hook of panics has told where.
                Ok(Err(_)) => {
                    Refusal(Problem::new(Code::Internal, "the handler panicked")).into_response()
                }
                Err(_) => {
                    let seconds = place.time.as_secs();
                    let detail = format!("not done within {seconds} s; it may be done yet");
                    Refusal(Problem::new(Code::Busy, detail)).into_response()
                }
            }
        }
    };
    if response.status() == StatusCode::UNAUTHORIZED
        && shows
        && let Some(refusal) = from.and_then(|from| gate.site.rates.stranger(from))
    {
        response = refusal.into_response();
    }
    if let Some(said) = response.extensions_mut().remove::<Said>() {
        let mut settled = gate.settle(&said, &id, place);
        for (name, value) in response.headers() {
            if !settled.headers().contains_key(name) && name != header::CONTENT_LENGTH {
                settled.headers_mut().insert(name.clone(), value.clone());
            }
        }
        response = settled;
    }
    let took = gate.site.clock.uptime().saturating_sub(began);
    place.meter.count(response.status().as_u16(), took);
    sign(&gate, response.headers_mut(), id);
    response
}

/// What every answer carries.
fn sign(gate: &Gate, headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID.clone(), id);
    headers.insert(VERSION.clone(), gate.version.clone());
    headers.insert(REVISION.clone(), gate.revision.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn no_method(request: &Request, others: &[Place]) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let detail = format!("{path} does not take {method}");
    let mut response = Refusal(Problem::new(Code::MethodNotAllowed, detail)).into_response();
    let takes: Vec<&str> = others.iter().map(|place| place.method.as_str()).collect();
    let allow = takes.join(",").replace("GET", "GET,HEAD");
    if let Ok(allow) = HeaderValue::try_from(allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

fn too_large(status: StatusCode, detail: String) -> Refusal {
    let mut problem = Problem::new(Code::TooLarge, detail);
    problem.status = status.as_u16();
    Refusal(problem)
}
