//! The lines in which two texts differ, for a person.

/// Lines shown around a change.
const AROUND: usize = 2;

/// Most lines of the two texts that may differ before whole stretches are shown as replaced: the
/// search for common lines takes time and memory with the square of it.
const DIFFERING_MAX: usize = 400;

/// A line of the one text, of the other, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// In both.
    Same(&'a str),
    /// Only in the old one.
    Old(&'a str),
    /// Only in the new one.
    New(&'a str),
    /// Lines in both that are left out.
    Gap,
}

/// Lists the lines that differ, with a few around them.
pub(super) fn diff<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let (old, new) = (lines(old), lines(new));
    let all = script(&old, &new);
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        let to = (at + AROUND + 1).min(all.len());
        all[from..to]
            .iter()
            .any(|line| !matches!(line, Line::Same(_)))
    };
    let mut shown = Vec::new();
    for (at, line) in all.iter().enumerate() {
        if near(at) {
            shown.push(*line);
        } else if shown.last() != Some(&Line::Gap) {
            shown.push(Line::Gap);
        }
    }
    shown
}

/// Returns the lines of a text with their ends: a last line with one is not the same as without.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Finds the shortest way from the one text to the other (Myers 1986).
fn script<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let old_rest = &old_rest[..old_rest.len() - tail];
    let new_rest = &new_rest[..new_rest.len() - tail];
    let same = |line: &&'a str| Line::Same(line);
    let mut all: Vec<Line<'a>> = old[..head].iter().map(same).collect();
    if let Some(lines) = shortest(old_rest, new_rest) {
        all.extend(lines);
    } else {
        all.extend(old_rest.iter().map(|line| Line::Old(line)));
        all.extend(new_rest.iter().map(|line| Line::New(line)));
    }
    all.extend(old[old.len() - tail..].iter().map(same));
    all
}

fn shortest<'a>(old: &[&'a str], new: &[&'a str]) -> Option<Vec<Line<'a>>> {
    let size = (old.len() + new.len()).min(DIFFERING_MAX);
    // The furthest line of the old text that is reached on each diagonal, after each edit.
    let mut furthest = vec![0_usize; 2 * size + 3];
    let mut trace = Vec::new();
    // Diagonals run from -size to size: they are counted from `middle`.
    let middle = size + 1;
    for edits in 0..=size {
        trace.push(furthest.clone());
        for diagonal in (middle - edits..=middle + edits).step_by(2) {
            let down = goes_down(&furthest, middle, diagonal, edits);
            let mut x = if down {
                furthest[diagonal + 1]
            } else {
                furthest[diagonal - 1] + 1
            };
            let Some(mut y) = (x + middle).checked_sub(diagonal) else {
                continue;
            };
            while x < old.len() && y < new.len() && old[x] == new[y] {
                x += 1;
                y += 1;
            }
            furthest[diagonal] = x;
            if x >= old.len() && y >= new.len() {
                return Some(walk_back(old, new, &trace, middle));
            }
        }
    }
    None
}

fn goes_down(furthest: &[usize], middle: usize, diagonal: usize, edits: usize) -> bool {
    diagonal == middle - edits
        || (diagonal != middle + edits && furthest[diagonal - 1] < furthest[diagonal + 1])
}

fn walk_back<'a>(
    old: &[&'a str],
    new: &[&'a str],
    trace: &[Vec<usize>],
    middle: usize,
) -> Vec<Line<'a>> {
    let (mut x, mut y) = (old.len(), new.len());
    let mut lines = Vec::new();
    for (edits, furthest) in trace.iter().enumerate().rev() {
        let diagonal = x + middle - y;
        let down = goes_down(furthest, middle, diagonal, edits);
        let from = if down { diagonal + 1 } else { diagonal - 1 };
        let (before_x, before_y) = if edits == 0 {
            (0, 0)
        } else {
            (furthest[from], furthest[from] + middle - from)
        };
        while x > before_x && y > before_y {
            x -= 1;
            y -= 1;
            lines.push(Line::Same(old[x]));
        }
        if edits > 0 {
            if down {
                y -= 1;
                lines.push(Line::New(new[y]));
            } else {
                x -= 1;
                lines.push(Line::Old(old[x]));
            }
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sides(lines: &[Line<'_>]) -> (String, String) {
        let (mut old, mut new) = (String::new(), String::new());
        for line in lines {
            match line {
                Line::Same(line) => {
                    old.push_str(line);
                    new.push_str(line);
                }
                Line::Old(line) => old.push_str(line),
                Line::New(line) => new.push_str(line),
                Line::Gap => {}
            }
        }
        (old, new)
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_off(old in "[abc\n]{0,30}", new in "[abc\n]{0,30}") {
            let script = script(&lines(&old), &lines(&new));
            prop_assert_eq!(sides(&script), (old, new));
        }
    }

    #[test]
    fn only_what_differs_is_shown_with_what_is_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nx\n5\n6\n7\n8\n9";
        assert_eq!(
            diff(old, new),
            [
                Line::Gap,
                Line::Same("3\n"),
                Line::Same("4\n"),
                Line::New("x\n"),
                Line::Same("5\n"),
                Line::Same("6\n"),
                Line::Same("7\n"),
                Line::Same("8\n"),
                Line::Old("9\n"),
                Line::New("9"),
            ]
        );
        assert_eq!(diff("", ""), []);
        assert_eq!(diff("a\n", "a\n"), [Line::Gap]);
    }

    #[test]
    fn texts_that_have_nothing_in_common_are_shown_one_after_the_other() {
        let text = |of: &str| (0..DIFFERING_MAX).map(|n| format!("{of}{n}\n")).collect();
        let (old, new): (String, String) = (text("a"), text("b"));
        let shown = diff(&old, &new);
        assert!(
            shown[..DIFFERING_MAX]
                .iter()
                .all(|it| matches!(it, Line::Old(_)))
        );
        assert_eq!(sides(&shown), (old.clone(), new.clone()));
    }
}
