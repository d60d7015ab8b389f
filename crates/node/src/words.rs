//! Times, names and sentences as a person reads them.

use std::time::Duration;

/// Most edits between a word that is not known and the one that was probably meant.
const SLIPS_MAX: usize = 3;

/// Writes a length of time: `250 ms`, `5 s`, `1.5 s`.
pub(crate) fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    match (ms / 1_000, ms % 1_000 / 100) {
        (0, _) => format!("{ms} ms"),
        (seconds, 0) => format!("{seconds} s"),
        (seconds, tenths) => format!("{seconds}.{tenths} s"),
    }
}

/// Writes how long somebody waited: `within 5 s`, or `at once` when not at all.
pub(crate) fn within(wait: Duration) -> String {
    if wait.is_zero() {
        "at once".to_owned()
    } else {
        format!("within {}", duration(wait))
    }
}

/// Writes how long ago something was, in its largest unit: `now`, `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(ago: Duration) -> String {
    match ago.as_secs() {
        0 => "now".to_owned(),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Reads a time as answers write it, `2026-01-02T03:04:05.678Z`, as milliseconds since 1970.
pub(crate) fn unix_ms(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let of_day = (number(11, 13)? * 60 + number(14, 16)?) * 60 + number(17, 19)?;
    // Years that begin in March have their leap day last, and eras of 400 years one length.
    let from_march = (month + 9) % 12;
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some((days * 86_400 + of_day) * 1_000 + number(20, 23)?)
}

/// Quotes a word for a shell, where it needs it.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Writes a remedy as what it is, a sentence: a capital first, a full stop last.
pub(crate) fn sentence(mut text: String) -> String {
    if let Some(first) = text.chars().next() {
        text.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
        if !text.ends_with(['.', '!', '?']) {
            text.push('.');
        }
    }
    text
}

/// Finds the known word that an unknown one was probably meant to be; none when none is near.
pub(crate) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let (slips, word) = known
        .into_iter()
        .map(|word| (edits(unknown, word), word))
        .min()?;
    let near = slips <= SLIPS_MAX && 2 * slips < unknown.chars().count();
    near.then_some(word)
}

/// Counts the single-letter edits between two short words (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use earshot_proto::Timestamp;

    use super::*;

    #[test]
    fn times_are_written_in_one_unit() {
        for (ms, written, waited, ago) in [
            (0, "0 ms", "at once", "now"),
            (250, "250 ms", "within 250 ms", "now"),
            (1_000, "1 s", "within 1 s", "1s"),
            (1_530, "1.5 s", "within 1.5 s", "1s"),
            (59_999, "59.9 s", "within 59.9 s", "59s"),
            (300_000, "300 s", "within 300 s", "5m"),
            (10_800_000, "10800 s", "within 10800 s", "3h"),
            (172_800_000, "172800 s", "within 172800 s", "2d"),
        ] {
            let time = Duration::from_millis(ms);
            assert_eq!(duration(time), written);
            assert_eq!(within(time), waited);
            assert_eq!(age(time), ago);
        }
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for ms in [
            0,
            951_782_399_999,
            951_782_400_000,
            1_798_761_600_123,
            253_402_300_799_999,
        ] {
            assert_eq!(unix_ms(&Timestamp::from_unix_ms(ms).to_string()), Some(ms));
        }
        for text in [
            "",
            "yesterday",
            "1969-12-31T23:59:59.999Z",
            "2026-01-00T00:00:00.000Z",
        ] {
            assert_eq!(unix_ms(text), None, "{text}");
        }
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, quoted) in [
            ("/usr/bin/earshot", "/usr/bin/earshot"),
            ("/my tools/earshot", "'/my tools/earshot'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(shell_quoted(word), quoted);
        }
    }

    #[test]
    fn a_remedy_is_a_sentence() {
        for (text, expected) in [
            (
                "start in one of its checkouts",
                "Start in one of its checkouts.",
            ),
            ("`earshot up` starts one.", "`earshot up` starts one."),
            ("", ""),
        ] {
            assert_eq!(sentence(text.to_owned()), expected);
        }
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        let known = ["host", "loopback", "names"];
        for (unknown, expected) in [
            ("loopbak", Some("loopback")),
            ("hosst", Some("host")),
            ("name", Some("names")),
            ("port", None),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(unknown, known), expected, "{unknown}");
        }
    }
}
