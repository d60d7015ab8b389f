//! Human forms of answers: aligned tables, and plain lists of fields.

use serde_json::{Map, Value};

use super::printer::{Printer, Tone};

/// Widest cell of a table, in characters: longer text is cut with an ellipsis.
const CELL_MAX: usize = 60;

/// Lays rows out in aligned columns under their headings. The last column is not padded.
pub(crate) fn table(printer: Printer, headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings
        .iter()
        .map(|heading| heading.chars().count())
        .collect();
    let cut: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| shorten(cell)).collect())
        .collect();
    for row in &cut {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            if at > 0 {
                line.push_str("  ");
            }
            line.push_str(cell);
            if at + 1 < cells.len() {
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
            }
        }
        line.truncate(line.trim_end().len());
        line
    };
    let head: Vec<String> = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let mut text = format!("{}\n", printer.tone(Tone::Strong, &line(&head)));
    for row in &cut {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

fn shorten(cell: &str) -> String {
    if cell.chars().count() <= CELL_MAX {
        return cell.to_owned();
    }
    cell.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

/// Lays out names and values, the values aligned.
pub(crate) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs
        .iter()
        .map(|(name, value)| format!("  {name:width$}  {value}\n"))
        .collect()
}

/// Writes any answer for a person: nested fields are indented.
pub(crate) fn object(value: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_fields(&mut text, value, 0);
    text
}

fn write_fields(text: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (name, value) in fields {
        let indent = "  ".repeat(depth);
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push_str(&format!("{indent}{name}:\n"));
                write_fields(text, inner, depth + 1);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
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
            | Value::Object(_) => text.push_str(&format!("{indent}{name}: {}\n", scalar(value))),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::printer::Format;

    fn plain() -> Printer {
        Printer::new(Format::Text, true)
    }

    #[test]
    fn columns_align_and_long_cells_are_cut() {
        let rows = vec![
            vec!["p1".to_owned(), "ü".to_owned(), "x".repeat(80)],
            vec!["p10".to_owned(), "claude".to_owned(), "y".to_owned()],
        ];
        let text = table(plain(), &["PEER", "CLIENT", "INTENT"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "PEER  CLIENT  INTENT");
        assert!(lines[1].starts_with("p1    ü       x") && lines[1].ends_with("x…"));
        assert_eq!(lines[2], "p10   claude  y");
    }

    #[test]
    fn any_answer_can_be_read() {
        let answer = json!({
            "a": 1, "list": ["x", "y"], "empty": [],
            "rows": [{"id": "p1", "deep": {"n": true}}, {"id": "p2"}],
        });
        let text = object(answer.as_object().unwrap());
        assert_eq!(
            text,
            "a: 1\nlist: x, y\nempty: \nrows:\n  - id: p1\n    deep:\n      n: true\n  - id: p2\n"
        );
    }
}
