//! The two kinds of time: [`Now`] for timers, [`Timestamp`] for records and display.
//!
//! They never mix. A `Now` comes from a monotonic clock and never leaves the process; a `Timestamp`
//! is wall time, may jump, and decides nothing that matters between two machines.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A reading of a monotonic clock, as the time since an arbitrary start.
///
/// The driver hands it to every state machine; whether it counts suspended time is the driver's
/// choice of clock (it does not).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(Duration);

impl Now {
    /// The arbitrary start itself.
    pub const START: Self = Self(Duration::ZERO);

    /// Returns the reading that lies `elapsed` after the start.
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the time since the start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time since `earlier`, zero when `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Now {
    type Output = Self;

    /// Returns the reading `after` later, held at the greatest one there is.
    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }
}

/// Wall time as UTC milliseconds since 1970, between 1970 and the end of the year 9999.
///
/// Displays as RFC 3339 with milliseconds and `Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Last millisecond of the year 9999: RFC 3339 has four digits for a year.
const LAST_MS: u64 = 253_402_300_799_999;
const MS_PER_DAY: u64 = 86_400_000;

impl Timestamp {
    /// The first millisecond of 1970.
    pub const UNIX_EPOCH: Self = Self(0);

    /// Returns the time `ms` milliseconds after 1970 began, held at the end of the year 9999.
    pub const fn from_unix_ms(ms: u64) -> Self {
        if ms > LAST_MS {
            Self(LAST_MS)
        } else {
            Self(ms)
        }
    }

    /// Returns the milliseconds since 1970 began.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, zero when `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_date(self.0 / MS_PER_DAY);
        let ms = self.0 % MS_PER_DAY;
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, milli) = (ms / 1_000 % 60, ms % 1_000);
        write!(
            out,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

/// Returns (year, month, day) of the day that lies `days` after 1970-01-01.
///
/// Counts in years that begin on 1 March, so that the leap day is the last day of its year, and in
/// eras of 400 years, which all have the same length.
const fn civil_date(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    const DAYS_FROM_YEAR_0_MARCH_1: u64 = 719_468;
    let day = days + DAYS_FROM_YEAR_0_MARCH_1;
    let (era, day_of_era) = (day / DAYS_PER_ERA, day % DAYS_PER_ERA);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era + year_of_era / 100 - 365 * year_of_era - year_of_era / 4;
    // Months from March on have 31, 30, 31, 30, 31 days, over and over: 153 in five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let year = 400 * era + year_of_era;
    if month_from_march < 10 {
        (year, month_from_march + 3, day_of_month)
    } else {
        (year + 1, month_from_march - 9, day_of_month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc_3339_with_milliseconds() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_unix_ms(ms).to_string(), text);
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = civil_date(0);
        assert_eq!(before, (1970, 1, 1));
        for days in 1..=LAST_MS / MS_PER_DAY {
            let (year, month, day) = civil_date(days);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match before.1 {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let next = match before {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, day) if day == length => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
            assert_eq!((year, month, day), next);
            before = next;
        }
    }

    #[test]
    fn an_age_is_never_negative() {
        let (early, late) = (Timestamp::from_unix_ms(5), Timestamp::from_unix_ms(9));
        assert_eq!(late.since(early), Duration::from_millis(4));
        assert_eq!(early.since(late), Duration::ZERO);
        let later = Now::START + Duration::from_secs(1);
        assert_eq!(Now::START.since(later), Duration::ZERO);
        assert_eq!(later + Duration::MAX, Now::from_start(Duration::MAX));
    }
}
