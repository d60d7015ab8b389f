//! Measured times, and what is read from them.

use std::time::Duration;

/// Measured times in rising order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    /// Sorts what was measured.
    pub(super) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the time that so many of a thousand samples do not exceed, by nearest rank; zero
    /// when nothing was measured.
    pub(super) fn per_mille(&self, share: usize) -> Duration {
        let rank = (self.0.len() * share).div_ceil(1_000).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// Returns the median.
    pub(super) fn median(&self) -> Duration {
        self.per_mille(500)
    }

    /// Returns the time that one in a hundred exceeds.
    pub(super) fn p99(&self) -> Duration {
        self.per_mille(990)
    }

    /// Returns the longest.
    pub(super) fn longest(&self) -> Duration {
        self.per_mille(1_000)
    }

    /// Puts the samples of several rounds together.
    pub(super) fn merged(parts: &[&Self]) -> Self {
        Self::new(
            parts
                .iter()
                .flat_map(|part| part.0.iter().copied())
                .collect(),
        )
    }
}

/// Returns the median of plain numbers: of ratios and differences; zero when there are none.
pub(super) fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (
        numbers.get(middle),
        middle.checked_sub(1).and_then(|below| numbers.get(below)),
    ) {
        (Some(upper), Some(lower)) if numbers.len().is_multiple_of(2) => {
            f64::midpoint(*lower, *upper)
        }
        (Some(only), _) => *only,
        (None, _) => 0.0,
    }
}

/// Returns a time in milliseconds.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Returns a number with three places behind the point.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ms: &[u64]) -> Samples {
        Samples::new(ms.iter().copied().map(Duration::from_millis).collect())
    }

    #[test]
    fn a_percentile_is_the_nearest_rank_in_any_order_of_measuring() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        for (measured, share, wanted) in [
            (hundred.as_slice(), 500, 50),
            (&hundred, 990, 99),
            (&hundred, 991, 100),
            (&hundred, 1_000, 100),
            (&hundred, 0, 1),
            (&[7], 500, 7),
            (&[7], 990, 7),
            (&[3, 1, 2], 500, 2),
            (&[4, 1, 3, 2], 500, 2),
        ] {
            let found = samples(measured).per_mille(share);
            assert_eq!(
                found,
                Duration::from_millis(wanted),
                "{share} of {}",
                measured.len()
            );
        }
    }

    #[test]
    fn nothing_measured_is_zero_and_not_a_panic() {
        assert_eq!(samples(&[]).median(), Duration::ZERO);
        assert_eq!(samples(&[]).longest(), Duration::ZERO);
        assert!(median_of(Vec::new()).abs() < f64::EPSILON);
    }

    #[test]
    fn rounds_put_together_are_sorted_again() {
        let merged = Samples::merged(&[&samples(&[5, 1]), &samples(&[3])]);
        assert_eq!(merged, samples(&[1, 3, 5]));
    }

    #[test]
    fn the_median_of_ratios_takes_the_middle_or_the_mean_of_two() {
        for (numbers, wanted) in [
            (vec![3.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0, 2.0, 3.0], 2.5),
            (vec![-1.0], -1.0),
        ] {
            assert!((median_of(numbers) - wanted).abs() < f64::EPSILON);
        }
    }
}
