//! Counters for Prometheus, in memory: requests by route and status, and how long they took. A
//! label is a route's template or a status, never an id, a name or a token. Written by hand: the
//! text format is three lines a counter, and a request counts with two additions.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;

/// The statuses a site answers with; the last one stands for any other.
const STATUSES: [u16; 20] = [
    200, 204, 302, 303, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 429, 431, 500, 502, 503,
    507,
];

/// Upper bounds of the histogram, in milliseconds. Beyond a minute there are held answers alone.
const BOUNDS: [u64; 9] = [1, 5, 10, 50, 100, 500, 1000, 10_000, 60_000];

/// The counters of every route.
#[derive(Debug, Default)]
pub struct Metrics {
    meters: Mutex<Vec<Arc<Meter>>>,
    /// Connections over the network that are open now, and those turned away.
    pub(super) open: AtomicU64,
    pub(super) turned_away: AtomicU64,
}

/// The counters of one route.
#[derive(Debug)]
pub(super) struct Meter {
    method: Method,
    path: String,
    statuses: [AtomicU64; STATUSES.len() + 1],
    within: [AtomicU64; BOUNDS.len() + 1],
    took_us: AtomicU64,
}

impl Metrics {
    /// The counters of a route; the same ones for every router of the site.
    pub(super) fn meter(&self, method: &Method, path: &str) -> Arc<Meter> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let known = meters.iter().find(|meter| meter.method == *method && meter.path == path);
        if let Some(meter) = known {
            return Arc::clone(meter);
        }
        let meter = Arc::new(Meter::new(method.clone(), path.to_owned()));
        meters.push(Arc::clone(&meter));
        meter
    }

    /// Everything counted, with `gauges` in front, in the text format.
    pub(super) fn text(&self, gauges: &[(&str, &str, u64)]) -> String {
        let mut text = String::new();
        let turned = self.turned_away.load(Ordering::Relaxed);
        let own = [(
            "relay_connections",
            "connections over the network",
            self.open.load(Ordering::Relaxed),
        )];
        for (name, help, value) in gauges.iter().chain(&own) {
            line(&mut text, &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"));
        }
        line(
            &mut text,
            &format!(
                "# HELP relay_connections_refused_total connections over the limit\n\
                 # TYPE relay_connections_refused_total counter\n\
                 relay_connections_refused_total {turned}"
            ),
        );
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        line(
            &mut text,
            "# HELP relay_requests_total requests by route and status\n\
             # TYPE relay_requests_total counter",
        );
        for meter in meters.iter() {
            meter.write_statuses(&mut text);
        }
        line(
            &mut text,
            "# HELP relay_request_seconds time to the head of the answer, held ones included\n\
             # TYPE relay_request_seconds histogram",
        );
        for meter in meters.iter() {
            meter.write_times(&mut text);
        }
        text
    }
}

impl Meter {
    fn new(method: Method, path: String) -> Self {
        let zero = |_| AtomicU64::new(0);
        Self {
            method,
            path,
            statuses: std::array::from_fn(zero),
            within: std::array::from_fn(zero),
            took_us: AtomicU64::new(0),
        }
    }

    /// The route's path; empty for what is no route.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Counts one answer.
    pub(super) fn count(&self, status: u16, took: Duration) {
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len());
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bound = BOUNDS.iter().position(|bound| ms < *bound).unwrap_or(BOUNDS.len());
        if let (Some(count), Some(within)) = (self.statuses.get(place), self.within.get(bound)) {
            count.fetch_add(1, Ordering::Relaxed);
            within.fetch_add(1, Ordering::Relaxed);
        }
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.took_us.fetch_add(us, Ordering::Relaxed);
    }

    fn labels(&self) -> String {
        // What is no route has no method either: it could be any word.
        let method = if self.path.is_empty() { "" } else { self.method.as_str() };
        format!("method=\"{method}\",route=\"{}\"", self.path)
    }

    fn write_statuses(&self, text: &mut String) {
        let labels = self.labels();
        let words = STATUSES.iter().map(ToString::to_string).chain(["other".to_owned()]);
        for (status, count) in words.zip(&self.statuses) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let value = format!("{{{labels},status=\"{status}\"}} {count}");
                line(text, &format!("relay_requests_total{value}"));
            }
        }
    }

    fn write_times(&self, text: &mut String) {
        let labels = self.labels();
        let counts: Vec<u64> = self.within.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        if all == 0 {
            return;
        }
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(&counts) {
            below += count;
            let seconds = Duration::from_millis(*bound).as_secs_f64();
            line(
                text,
                &format!("relay_request_seconds_bucket{{{labels},le=\"{seconds}\"}} {below}"),
            );
        }
        line(text, &format!("relay_request_seconds_bucket{{{labels},le=\"+Inf\"}} {all}"));
        let sum = Duration::from_micros(self.took_us.load(Ordering::Relaxed)).as_secs_f64();
        line(text, &format!("relay_request_seconds_sum{{{labels}}} {sum}"));
        line(text, &format!("relay_request_seconds_count{{{labels}}} {all}"));
    }
}

fn line(text: &mut String, line: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_counted_by_status_and_time() {
        let metrics = Metrics::default();
        let meter = metrics.meter(&Method::GET, "/api/v1/tasks");
        meter.count(200, Duration::from_millis(3));
        meter.count(200, Duration::from_millis(70));
        metrics.meter(&Method::GET, "/api/v1/tasks").count(418, Duration::from_secs(100));
        let text = metrics.text(&[("relay_queued", "tasks", 7)]);
        for line in [
            "relay_queued 7",
            "relay_requests_total{method=\"GET\",route=\"/api/v1/tasks\",status=\"200\"} 2",
            "relay_requests_total{method=\"GET\",route=\"/api/v1/tasks\",status=\"other\"} 1",
            "relay_request_seconds_bucket{method=\"GET\",route=\"/api/v1/tasks\",le=\"0.005\"} 1",
            "relay_request_seconds_bucket{method=\"GET\",route=\"/api/v1/tasks\",le=\"0.1\"} 2",
            "relay_request_seconds_bucket{method=\"GET\",route=\"/api/v1/tasks\",le=\"+Inf\"} 3",
            "relay_request_seconds_count{method=\"GET\",route=\"/api/v1/tasks\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("status=\"404\""), "what never happened is not told");
    }
}
