//! JSON files of clients, with the comments and trailing commas that some of them allow: read by
//! `jsonc-parser`, changed by putting text in and taking text out.

use std::ops::Range;

use jsonc_parser::{
    CollectOptions, CommentCollectionStrategy, ParseOptions,
    ast::{Object, Value as Node},
    common::Ranged as _,
    parse_to_ast,
};
use serde_json::{Map, Value, json};

use super::{
    document::{Broken, CORRECT_IT, Insertion, Margins, Removal},
    grown::{line_at, newline_of},
    part::{Kind, Part, Step},
};

/// How deep a member stands below its object, where a file does not show it.
const INDENT_DEFAULT: &str = "  ";

/// A JSON file that was read.
#[derive(Debug)]
pub(super) struct Json<'a> {
    text: &'a str,
    /// `None` where there is nothing but blanks and comments.
    root: Option<Node<'a>>,
    /// Where its tokens and its comments are, in order.
    marks: Vec<Range<usize>>,
    value: Value,
}

/// An object or array, and what is in it.
struct Container {
    /// From bracket to bracket.
    range: Range<usize>,
    /// Its members or elements.
    inside: Vec<Range<usize>>,
}

impl<'a> Json<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it is no JSON, or has one name twice in an object that matters.
    pub(super) fn read(text: &'a str) -> Result<Self, Broken> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let collect = CollectOptions {
            comments: CommentCollectionStrategy::AsTokens,
            tokens: true,
        };
        let parsed = parse_to_ast(text, &collect, &options).map_err(|error| Broken {
            line: line_at(text, error.range().start),
            why: format!("it is no JSON: {}", error.kind()),
            remedy: CORRECT_IT,
        })?;
        let tokens = parsed.tokens.unwrap_or_default();
        let marks = tokens
            .iter()
            .map(|token| token.range.start..token.range.end)
            .collect();
        let value = match &parsed.value {
            Some(root) => value_of(root, text, 0)?,
            None => json!({}),
        };
        Ok(Self {
            text,
            root: parsed.value,
            marks,
            value,
        })
    }

    /// Returns what it says.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Says whether it says nothing, and holds no comment either.
    pub(super) fn is_void(&self) -> bool {
        let empty = self.value.as_object().is_some_and(Map::is_empty);
        empty && self.marks.len() <= 2
    }

    /// Returns the line of a value.
    pub(super) fn line_of(&self, way: &[Step]) -> usize {
        let at = self.find(way).map_or(0, |(range, _)| range.start);
        line_at(self.text, at)
    }

    /// Returns the text of a value, where it is one.
    pub(super) fn text_at(&self, way: &[Step]) -> Option<Range<usize>> {
        let (_, node) = self.find(way)?;
        let Node::StringLit(text) = node else {
            return None;
        };
        Some(text.range.start..text.range.end)
    }

    /// Says how to put a part in.
    pub(super) fn insertion(&self, part: &Part) -> Insertion {
        let newline = newline_of(self.text);
        let Some(root) = &self.root else {
            let body = pretty(&nested(&part.at, part), self.indent_unit(), "", newline);
            let open = !self.text.is_empty() && !self.text.ends_with('\n');
            // The document around it is put in as well, so nothing of this is its margin.
            return Insertion {
                comma: None,
                at: self.text.len(),
                before: String::new(),
                body: format!("{}{body}{newline}", if open { newline } else { "" }),
                behind: String::new(),
                made: part.holders().len(),
            };
        };
        // As far down as there is something already.
        let mut node = root;
        let mut depth = 0;
        for name in part.holders() {
            let Some(next) = member(node, name) else {
                break;
            };
            node = next;
            depth += 1;
        }
        let rest = &part.at[depth..];
        let (key, value) = match rest.split_first() {
            Some((key, below)) => (Some(key.as_str()), nested(below, part)),
            None => (None, part.value.clone()),
        };
        self.put(&container(node), key, &value, newline)
            .made(part.holders().len() - depth)
    }

    /// Says how to take out what stands at the end of a way, with as many of the names above it as
    /// would be left empty and may go; `margins` is what was put around it.
    pub(super) fn removal(
        &self,
        way: &[Step],
        may_go: usize,
        margins: &Margins,
    ) -> Option<Removal> {
        let mut way = way;
        let mut gone = 0;
        while gone < may_go && way.len() > 1 {
            let above = &way[..way.len() - 1];
            let (_, holder) = self.find(above)?;
            if container(holder).inside.len() > 1 {
                break;
            }
            way = above;
            gone += 1;
        }
        let (range, _) = self.find(way)?;
        let (_, holder) = self.find(&way[..way.len() - 1])?;
        let holder = container(holder);
        let at = holder.inside.iter().position(|it| *it == range)?;
        let last = at + 1 == holder.inside.len();
        let comma_behind = self
            .mark_behind(range.end)
            .filter(|mark| self.is(mark, ","));
        let comma_before = (at > 0)
            .then(|| self.mark_behind(holder.inside[at - 1].end))
            .flatten()
            .filter(|mark| self.is(mark, ","));
        let mut ranges = Vec::new();
        // The comma that stands between it and the next goes, else the one before it.
        let comma = if last && comma_behind.is_none() {
            comma_before
        } else {
            comma_behind
        };
        let (before, behind) = (margins.before.as_str(), margins.behind.as_str());
        let framed = gone == margins.made
            && self.text[..range.start].ends_with(before)
            && self.text[range.end..].starts_with(behind);
        let start = self.mark_before(range.start);
        if framed && !(before.is_empty() && behind.is_empty()) {
            ranges.push(range.start - before.len()..range.end + behind.len());
        } else if last
            && at == 0
            && self
                .mark_behind(range.end)
                .is_some_and(|it| self.is_close(&it))
        {
            // Nothing is left in it: neither are the blanks that held it.
            let end = self.mark_behind(range.end).map_or(range.end, |it| it.start);
            ranges.push(start..end);
        } else {
            ranges.push(start..range.end);
        }
        if let Some(comma) = comma
            && ranges
                .iter()
                .all(|it| comma.end <= it.start || it.end <= comma.start)
        {
            ranges.push(comma);
        }
        ranges.sort_by_key(|it| it.start);
        Some(Removal { ranges })
    }

    fn find(&self, way: &[Step]) -> Option<(Range<usize>, &Node<'a>)> {
        let mut node = self.root.as_ref()?;
        let mut range = node.start()..node.end();
        for step in way {
            match (step, node) {
                (Step::Key(name), Node::Object(object)) => {
                    let found = property(object, name)?;
                    range = found.range.start..found.range.end;
                    node = &found.value;
                }
                (Step::At(at), Node::Array(array)) => {
                    node = array.elements.get(*at)?;
                    range = node.start()..node.end();
                }
                _ => return None,
            }
        }
        Some((range, node))
    }

    /// Writes a member or element for the end of a container.
    fn put(
        &self,
        container: &Container,
        key: Option<&str>,
        value: &Value,
        newline: &str,
    ) -> Insertion {
        let open = container.range.start + 1;
        let close = container.range.end - 1;
        let last = container.inside.last();
        let trailing = last
            .and_then(|last| self.mark_behind(last.end))
            .filter(|mark| self.is(mark, ","));
        let at = self.mark_before(close).max(open);
        let comma = match (last, &trailing) {
            (Some(last), None) => Some(last.end),
            _ => None,
        };
        let within = &self.text[container.range.clone()];
        let on_one_line = last.is_some() && !within.contains('\n');
        if on_one_line {
            let spaced = within.contains(": ") || within.contains(", ");
            let body = named(key, &inline(value, spaced), if spaced { ": " } else { ":" });
            return Insertion {
                comma,
                at,
                before: if spaced { " " } else { "" }.to_owned(),
                body,
                behind: if trailing.is_some() { "," } else { "" }.to_owned(),
                made: 0,
            };
        }
        let unit = self.indent_unit();
        let outer = self.indent_of_line(container.range.start);
        let inner = last
            .filter(|last| self.begins_its_line(last.start))
            .map_or_else(
                || format!("{outer}{unit}"),
                |last| self.indent_of_line(last.start).to_owned(),
            );
        let body = named(key, &pretty(value, unit, &inner, newline), ": ");
        let comma_behind = if trailing.is_some() { "," } else { "" };
        let line_end = if self.text[at..close].contains('\n') {
            String::new()
        } else {
            format!("{newline}{outer}")
        };
        Insertion {
            comma,
            at,
            before: format!("{newline}{inner}"),
            body,
            behind: format!("{comma_behind}{line_end}"),
            made: 0,
        }
    }

    /// Returns how much deeper a member stands than its object: as the first one that shows it.
    fn indent_unit(&self) -> &str {
        let Some(Node::Object(root)) = &self.root else {
            return INDENT_DEFAULT;
        };
        root.properties
            .iter()
            .find(|it| self.begins_its_line(it.range.start))
            .map(|it| self.indent_of_line(it.range.start))
            .filter(|indent| !indent.is_empty())
            .unwrap_or(INDENT_DEFAULT)
    }

    fn line_before(&self, at: usize) -> &str {
        let start = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        &self.text[start..at]
    }

    fn begins_its_line(&self, at: usize) -> bool {
        self.text[..at].contains('\n') && self.line_before(at).trim().is_empty()
    }

    fn indent_of_line(&self, at: usize) -> &str {
        let line = self.line_before(at);
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Returns where the last token or comment ends that lies before a place.
    fn mark_before(&self, at: usize) -> usize {
        let behind = self.marks.partition_point(|mark| mark.end <= at);
        behind
            .checked_sub(1)
            .map_or(0, |before| self.marks[before].end)
    }

    /// Returns the first token behind a place, passing over comments.
    fn mark_behind(&self, at: usize) -> Option<Range<usize>> {
        let from = self.marks.partition_point(|mark| mark.start < at);
        self.marks[from..]
            .iter()
            .find(|mark| !self.text[(*mark).clone()].starts_with('/'))
            .cloned()
    }

    fn is(&self, mark: &Range<usize>, token: &str) -> bool {
        &self.text[mark.clone()] == token
    }

    fn is_close(&self, mark: &Range<usize>) -> bool {
        self.is(mark, "}") || self.is(mark, "]")
    }
}

/// Returns a value below names that are not there yet.
fn nested(names: &[String], part: &Part) -> Value {
    let innermost = match part.kind {
        Kind::Server => part.value.clone(),
        Kind::Hook => json!([part.value]),
    };
    names
        .iter()
        .rev()
        .fold(innermost, |value, name| json!({ name: value }))
}

fn member<'n, 'a>(node: &'n Node<'a>, name: &str) -> Option<&'n Node<'a>> {
    property(node.as_object()?, name).map(|found| &found.value)
}

fn property<'n, 'a>(
    object: &'n Object<'a>,
    name: &str,
) -> Option<&'n jsonc_parser::ast::ObjectProp<'a>> {
    object.properties.iter().find(|it| it.name.as_str() == name)
}

fn container(node: &Node<'_>) -> Container {
    let inside = match node {
        Node::Object(object) => {
            let members = object.properties.iter();
            members.map(|it| it.range.start..it.range.end).collect()
        }
        Node::Array(array) => {
            let elements = array.elements.iter();
            elements.map(|it| it.start()..it.end()).collect()
        }
        _ => Vec::new(),
    };
    Container {
        range: node.start()..node.end(),
        inside,
    }
}

/// Returns what a file says. A name that is there twice would be one thing to one reader and
/// another to the next; `depth` levels down it is nobody's business here.
fn value_of(node: &Node<'_>, text: &str, depth: usize) -> Result<Value, Broken> {
    Ok(match node {
        Node::StringLit(it) => json!(it.value),
        Node::NumberLit(it) => serde_json::from_str(it.value).unwrap_or_default(),
        Node::BooleanLit(it) => json!(it.value),
        Node::NullKeyword(_) => Value::Null,
        Node::Array(array) => {
            let elements = array.elements.iter();
            elements
                .map(|it| value_of(it, text, depth + 1))
                .collect::<Result<Value, Broken>>()?
        }
        Node::Object(object) => {
            let mut members = Map::new();
            for it in &object.properties {
                let name = it.name.as_str();
                let value = value_of(&it.value, text, depth + 1)?;
                if members.insert(name.to_owned(), value).is_some() && depth < 2 {
                    return Err(Broken {
                        line: line_at(text, it.range.start),
                        why: format!("`{name}` is there twice"),
                        remedy: CORRECT_IT,
                    });
                }
            }
            Value::Object(members)
        }
    })
}

fn named(key: Option<&str>, value: &str, colon: &str) -> String {
    match key {
        Some(key) => format!("{}{colon}{value}", json!(key)),
        None => value.to_owned(),
    }
}

/// Writes a value over several lines, lists of plain values on one.
fn pretty(value: &Value, unit: &str, indent: &str, newline: &str) -> String {
    let inner = format!("{indent}{unit}");
    let lines: Vec<String> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| named(Some(key), &pretty(value, unit, &inner, newline), ": "))
            .collect(),
        Value::Array(elements) if elements.iter().any(Value::is_object) => elements
            .iter()
            .map(|value| pretty(value, unit, &inner, newline))
            .collect(),
        plain => return inline(plain, true),
    };
    let (open, close) = if value.is_object() {
        ("{", "}")
    } else {
        ("[", "]")
    };
    let between = format!(",{newline}{inner}");
    format!(
        "{open}{newline}{inner}{}{newline}{indent}{close}",
        lines.join(&between)
    )
}

/// Writes a value on one line.
fn inline(value: &Value, spaced: bool) -> String {
    let (comma, colon) = if spaced { (", ", ": ") } else { (",", ":") };
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| named(Some(key), &inline(value, spaced), colon))
                .collect();
            format!("{{{}}}", members.join(comma))
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|it| inline(it, spaced)).collect();
            format!("[{}]", elements.join(comma))
        }
        plain => plain.to_string(),
    }
}
