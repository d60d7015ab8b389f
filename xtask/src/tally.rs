//! What a run counted, and how the count is read out of the output of other tools.

use std::{fmt, ops::AddAssign};

/// How many checks passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Checks that ran and held.
    pub(crate) passed: u64,
    /// Checks that ran and did not hold.
    pub(crate) failed: u64,
    /// Checks that did not run, each named loudly where it was skipped.
    pub(crate) skipped: u64,
}

impl Tally {
    /// Returns the tally of one check.
    pub(crate) fn one(passed: bool) -> Self {
        Self {
            passed: u64::from(passed),
            failed: u64::from(!passed),
            skipped: 0,
        }
    }

    /// Returns the tally of one check that could not run.
    pub(crate) fn skipped() -> Self {
        Self {
            skipped: 1,
            ..Self::default()
        }
    }

    /// Returns this tally, made to agree with an exit status.
    ///
    /// A tool that failed without counting a failure failed once; a tool that succeeded without
    /// counting anything passed once.
    pub(crate) fn agreeing_with(mut self, success: bool) -> Self {
        if !success && self.failed == 0 {
            self.failed = 1;
        }
        if success && self == Self::default() {
            self.passed = 1;
        }
        self
    }

    fn add_word(&mut self, count: u64, word: &str) {
        match word {
            "passed" => self.passed += count,
            "failed" | "timed out" | "exec failed" => self.failed += count,
            "skipped" | "ignored" => self.skipped += count,
            _ => {}
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Reads the last `N passed, N failed[, N skipped]` that stands alone on a line.
pub(crate) fn of_closing_line(lines: &[String]) -> Option<Tally> {
    lines.iter().rev().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let shaped = matches!(words.as_slice(), [_, "passed,", _, "failed"])
            || matches!(words.as_slice(), [_, "passed,", _, "failed,", _, "skipped"]);
        if !shaped {
            return None;
        }
        counts(line, ',')
    })
}

/// Reads nextest's summary line.
pub(crate) fn of_nextest(lines: &[String]) -> Option<Tally> {
    lines.iter().rev().find_map(|line| {
        let (before, after) = line.split_once("run: ")?;
        before
            .trim_end()
            .ends_with("tests")
            .then(|| counts(&without_parentheses(after), ','))?
    })
}

/// Sums the `test result:` lines of the built-in test harness.
pub(crate) fn of_harness(lines: &[String]) -> Tally {
    let mut total = Tally::default();
    for line in lines {
        let result = line
            .trim_start()
            .strip_prefix("test result:")
            .and_then(|rest| {
                let (_verdict, figures) = rest.split_once(". ")?;
                counts(figures, ';')
            });
        if let Some(tally) = result {
            total += tally;
        }
    }
    total
}

fn counts(text: &str, separator: char) -> Option<Tally> {
    let mut tally = Tally::default();
    let mut any = false;
    for part in text.split(separator) {
        let Some((number, word)) = part.trim().split_once(' ') else {
            continue;
        };
        if let Ok(count) = number.parse() {
            tally.add_word(count, word.trim());
            any = true;
        }
    }
    any.then_some(tally)
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|character| match character {
            '(' => {
                depth += 1;
                false
            }
            ')' => {
                depth = depth.saturating_sub(1);
                false
            }
            _ => depth == 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn nextest_summaries_are_read_in_every_form() {
        for (line, wanted) in [
            (
                "     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped",
                tally(3, 0, 0),
            ),
            (
                "Summary [1s] 5 tests run: 4 passed (1 slow, 2 leaky), 1 failed, 2 skipped",
                tally(4, 1, 2),
            ),
            (
                "Summary [1s] 2/5 tests run: 1 passed, 1 timed out, 0 skipped",
                tally(1, 1, 0),
            ),
            (
                "Summary [1s] 2 tests run: 1 passed, 1 exec failed, 0 skipped",
                tally(1, 1, 0),
            ),
        ] {
            assert_eq!(of_nextest(&lines(line)), Some(wanted), "{line}");
        }
        assert_eq!(of_nextest(&lines("a line that says run: 3 passed")), None);
    }

    #[test]
    fn harness_results_are_summed() {
        let output = lines(
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
             test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.1s",
        );
        assert_eq!(of_harness(&output), tally(3, 3, 1));
    }

    #[test]
    fn only_a_line_of_its_own_closes_a_run() {
        let output = lines("7 passed, 1 failed\nscenario x: 9 passed, 9 failed\nbye");
        assert_eq!(of_closing_line(&output), Some(tally(7, 1, 0)));
        assert_eq!(
            of_closing_line(&lines("1 passed, 0 failed, 4 skipped")),
            Some(tally(1, 0, 4))
        );
        assert_eq!(of_closing_line(&lines("nothing")), None);
    }

    #[test]
    fn a_failing_status_is_never_counted_as_passed() {
        assert_eq!(tally(3, 0, 0).agreeing_with(false), tally(3, 1, 0));
        assert_eq!(Tally::default().agreeing_with(true), tally(1, 0, 0));
        assert_eq!(tally(0, 0, 2).agreeing_with(true), tally(0, 0, 2));
    }
}
