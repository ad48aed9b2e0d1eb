//! Measured time, and what to say about many measurements.

use std::time::{Duration, Instant};

/// A running watch.
#[derive(Debug, Clone, Copy)]
pub struct Watch(Instant);

impl Watch {
    /// Starts it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a measurement is about real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since its start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits a moment, for something that nobody tells.
#[expect(clippy::disallowed_methods, reason = "it waits in real time")]
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Waits for so long, for another process that goes on meanwhile.
#[expect(clippy::disallowed_methods, reason = "it waits in real time")]
pub fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// The quantile `q` (0 to 1) of the values, or 0 if there are none. Sorts them.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = (last as f64 * q.clamp(0.0, 1.0)).round() as usize;
    values.get(at).copied().unwrap_or(0.0)
}

/// The median of the values, or 0 if there are none. Sorts them.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// Microseconds.
#[must_use]
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Milliseconds.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        let mut many: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut many, 0.99), 99.0);
        assert_eq!(quantile(&mut many, 1.0), 100.0);
    }
}
