//! Human forms of answers: aligned tables, and plain lists of fields.

use serde_json::{Map, Value};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{
    printer::{Printer, Tone},
    shown::shown,
};

/// Narrowest that a column is made to fit a terminal: less says nothing any more.
const CELL_MIN: usize = 8;

/// What stands between two columns.
const GAP: &str = "  ";

/// Lays rows out in aligned columns under their headings. The last column is not padded.
///
/// On a terminal that is too narrow the widest columns are cut, with an ellipsis; elsewhere nothing
/// is.
pub(crate) fn table(printer: Printer, headings: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = headings.iter().map(|it| (*it).to_owned()).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| shown(cell).into_owned()).collect())
        .collect();
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    if let Some(columns) = printer.columns() {
        narrow(&mut widths, columns);
    }
    let mut text = format!("{}\n", printer.tone(Tone::Strong, &line(&head, &widths)));
    for row in &rows {
        text.push_str(&line(row, &widths));
        text.push('\n');
    }
    text
}

/// Takes from the widest columns until all of them fit side by side, or none can give.
fn narrow(widths: &mut [usize], columns: usize) {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    loop {
        let over = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
        let Some(widest) = widths.iter_mut().max_by_key(|width| **width) else {
            return;
        };
        if over == 0 || *widest <= CELL_MIN {
            return;
        }
        *widest -= 1;
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if at > 0 {
            line.push_str(GAP);
        }
        let cell = cut(cell, *width);
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width())));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cuts a cell to so many columns of a terminal.
fn cut(cell: &str, columns: usize) -> String {
    if cell.width() <= columns {
        return cell.to_owned();
    }
    let mut kept = String::new();
    let mut room = columns.saturating_sub(1);
    for character in cell.chars() {
        let width = character.width().unwrap_or(0);
        if width > room {
            break;
        }
        room -= width;
        kept.push(character);
    }
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

/// Lays out names and values, the values aligned.
pub(crate) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs
        .iter()
        .map(|(name, _)| name.width())
        .max()
        .unwrap_or(0);
    pairs
        .iter()
        .map(|(name, value)| format!("  {name:width$}  {}\n", shown(value)))
        .collect()
}

/// Writes any answer for a person: nested fields are indented, values beside each other aligned.
pub(crate) fn object(value: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_fields(&mut text, value, 0);
    text
}

fn write_fields(text: &mut String, fields: &Map<String, Value>, depth: usize) {
    let indent = "  ".repeat(depth);
    let beside = fields.iter().filter(|(_, value)| !stands_below(value));
    let names = beside.map(|(name, _)| shown(name).width());
    let widest = names.max().unwrap_or(0);
    for (name, value) in fields {
        let name = shown(name);
        match value {
            Value::Object(inner) if stands_below(value) => {
                text.push_str(&format!("{indent}{name}:\n"));
                write_fields(text, inner, depth + 1);
            }
            Value::Array(items) if stands_below(value) => {
                text.push_str(&format!("{indent}{name}:\n"));
                for item in items {
                    let mut block = String::new();
                    match item {
                        Value::Object(inner) => write_fields(&mut block, inner, depth + 2),
                        Value::Null
                        | Value::Bool(_)
                        | Value::Number(_)
                        | Value::String(_)
                        | Value::Array(_) => block = format!("{indent}    {}\n", scalar(item)),
                    }
                    let dash = format!("{indent}  - ");
                    text.push_str(&dash);
                    text.push_str(block.get(dash.len()..).unwrap_or("\n"));
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                let gap = " ".repeat(widest - name.width());
                let line = format!("{indent}{name}: {gap}{}", scalar(value));
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
    }
}

/// Says whether a value is written below its name, not beside it.
fn stands_below(value: &Value) -> bool {
    match value {
        Value::Object(inner) => !inner.is_empty(),
        Value::Array(items) => items.iter().any(Value::is_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text).into_owned(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            shown(&value.to_string()).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        cells.iter().map(row).collect()
    }

    #[test]
    fn columns_align_by_what_a_terminal_shows() {
        let rows = rows(&[
            &["p1", "ü", "x"],
            &["p10", "日本", "y"],
            &["p2", "e\u{301}t", "z\u{1b}[31m"],
        ]);
        assert_eq!(
            table(Printer::plain(None), &["PEER", "CLIENT", "INTENT"], &rows),
            "PEER  CLIENT  INTENT\n\
             p1    ü       x\n\
             p10   日本    y\n\
             p2    e\u{301}t      z\\u{1b}[31m\n"
        );
    }

    #[test]
    fn a_terminal_cuts_the_widest_columns_and_a_pipe_none() {
        let (long, wide) = ("x".repeat(80), "日本".repeat(20));
        let rows = rows(&[&["p1", &long, &wide], &["p2", "short", "a b"]]);
        let headings = ["PEER", "INTENT", "PATHS"];
        let piped = table(Printer::plain(None), &headings, &rows);
        assert!(piped.contains(&long) && piped.contains(&wide));
        for columns in [40, 41, 60, 120] {
            let text = table(Printer::plain(Some(columns)), &headings, &rows);
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(
                widest <= columns && widest + 2 >= columns.min(170),
                "{text}"
            );
            let first = text.lines().nth(1).unwrap();
            assert!(
                first.starts_with("p1    xxx") && first.ends_with("日…") | first.ends_with("本…")
            );
        }
        // What cannot fit is left to the terminal.
        let text = table(Printer::plain(Some(3)), &headings, &rows);
        assert_eq!(text.lines().nth(2), Some("p2    short     a b"));
    }

    #[test]
    fn any_answer_can_be_read() {
        let answer = json!({
            "a": 1, "list": ["x", "y"], "empty": [],
            "rows": [{"id": "p1", "deep": {"n": true}}, {"id": "p2", "branch": "a\u{7}"}],
        });
        let text = object(answer.as_object().unwrap());
        assert_eq!(
            text,
            "a:     1\nlist:  x, y\nempty:\nrows:\n  - id: p1\n    deep:\n      n: true\n  \
             - id:     p2\n    branch: a\\u{7}\n"
        );
    }
}
