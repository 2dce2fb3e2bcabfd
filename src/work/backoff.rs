//! How long to wait before asking again: the seed's ramp while nothing happens (15, 30, 60, … up to
//! the longest interval), and a backoff with full jitter while the site is away.

use std::time::Duration;

/// How long to wait before asking again (seed 002, "Adaptive backoff").
#[derive(Clone, Debug)]
pub struct Ramp {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Ramp {
    /// Starts at `first` and doubles up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    /// The longest wait.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The next wait, spread by `jitter` (0 to 1) over its last tenth, so that workers that were
    /// started together do not ask together.
    pub fn wait(&mut self, jitter: f64) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.longest);
        step.mul_f64(0.1f64.mul_add(jitter.clamp(0.0, 1.0), 0.9))
    }

    /// Something happened: back to the first wait.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// The longest wait that a site, or what stands before it, can ask for.
const ASKED_MAX: Duration = Duration::from_secs(300);

/// Waits while the site is away: any time from nothing up to a bound that doubles, so that the
/// workers of a site that comes back do not all come at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    bound: Duration,
    first: Duration,
}

impl Backoff {
    /// The bound is never longer than this: so soon a worker is back once the site is.
    pub const MOST: Duration = Duration::from_secs(60);

    /// The bound starts at `first`.
    #[must_use]
    pub fn new(first: Duration) -> Self {
        Self { bound: first, first }
    }

    /// The next wait, at `jitter` (0 to 1) of its bound. Not sooner than was asked for.
    pub fn wait(&mut self, jitter: f64, asked: Option<Duration>) -> Duration {
        let wait = self.bound.mul_f64(jitter.clamp(0.0, 1.0)).max(LEAST);
        self.bound = (self.bound * 2).min(Self::MOST);
        wait + asked.unwrap_or_default().min(ASKED_MAX)
    }

    /// It answered: back to the first bound.
    pub fn reset(&mut self) {
        self.bound = self.first;
    }
}

/// No two requests that fail come sooner after one another.
const LEAST: Duration = Duration::from_millis(50);

/// A number from 0 to 1 out of an id's random tail, so that jitter needs no second source of
/// randomness.
#[must_use]
pub fn jitter(uuid: &str) -> f64 {
    let tail = uuid.get(uuid.len().saturating_sub(8)..).unwrap_or("");
    u32::from_str_radix(tail, 16).map_or(0.5, |n| f64::from(n) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_the_seeds() {
        let mut ramp = Ramp::new(Duration::from_secs(15), Duration::from_secs(300));
        let waits: Vec<u64> = (0..7).map(|_| ramp.wait(1.0).as_secs()).collect();
        assert_eq!(waits, [15, 30, 60, 120, 240, 300, 300]);
        ramp.reset();
        assert_eq!(ramp.wait(1.0).as_secs(), 15);
    }

    #[test]
    fn a_backoff_doubles_its_bound_and_takes_any_wait_below_it() {
        let mut backoff = Backoff::new(Duration::from_millis(500));
        let waits: Vec<u128> = (0..9).map(|_| backoff.wait(1.0, None).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(backoff.wait(0.5, None), Duration::from_secs(30));
        assert_eq!(backoff.wait(0.0, None), LEAST);
        backoff.reset();
        assert_eq!(backoff.wait(1.0, None), Duration::from_millis(500));
    }

    #[test]
    fn what_is_asked_for_is_waited_for_within_reason() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(backoff.wait(0.5, asked(7)), Duration::from_millis(7500));
        assert!(backoff.wait(0.0, asked(1_000_000)) < ASKED_MAX + Duration::from_secs(1));
    }

    #[test]
    fn jitter_shortens_by_a_tenth_at_most() {
        let mut ramp = Ramp::new(Duration::from_secs(100), Duration::from_secs(100));
        assert_eq!(ramp.wait(0.0), Duration::from_secs(90));
        assert_eq!(ramp.wait(1.0), Duration::from_secs(100));
        assert!(jitter("00000000-0000-7000-8000-0000ffffffff") > 0.99);
        assert!(jitter("00000000-0000-7000-8000-000000000000") < 0.01);
    }
}
