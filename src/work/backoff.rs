//! The seed's ramp: 15, 30, 60, … up to the longest interval while nothing happens.

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
    fn jitter_shortens_by_a_tenth_at_most() {
        let mut ramp = Ramp::new(Duration::from_secs(100), Duration::from_secs(100));
        assert_eq!(ramp.wait(0.0), Duration::from_secs(90));
        assert_eq!(ramp.wait(1.0), Duration::from_secs(100));
        assert!(jitter("00000000-0000-7000-8000-0000ffffffff") > 0.99);
        assert!(jitter("00000000-0000-7000-8000-000000000000") < 0.01);
    }
}
