//! TOML files of clients: what they say is read by `toml`, where it stands by `toml_parser`.

use std::{collections::BTreeMap, ops::Range};

use serde_json::Value;
use toml_parser::{
    Source,
    parser::{Event, EventKind, parse_document},
};

use super::{
    document::{Broken, CORRECT_IT, Insertion, Margins, Removal},
    grown::{line_at, newline_of},
    part::{Kind, Part, Step, Way},
};

/// A TOML file that was read.
#[derive(Debug)]
pub(super) struct Toml<'a> {
    text: &'a str,
    value: Value,
    sections: Vec<Section>,
}

/// A header and the pairs below it; the first one has no header.
#[derive(Debug, Default)]
struct Section {
    way: Way,
    /// From its header to its last value.
    range: Range<usize>,
    pairs: Vec<Pair>,
}

/// A key and its value.
#[derive(Debug)]
struct Pair {
    way: Way,
    /// From the key to the end of the value.
    range: Range<usize>,
    value: Range<usize>,
}

impl<'a> Toml<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it is no TOML.
    pub(super) fn read(text: &'a str) -> Result<Self, Broken> {
        let table: ::toml::Table = text.parse().map_err(|error: ::toml::de::Error| Broken {
            line: line_at(text, error.span().map_or(0, |span| span.start)),
            why: format!("it is no TOML: {}", error.message()),
            remedy: CORRECT_IT,
        })?;
        Ok(Self {
            text,
            value: serde_json::to_value(table).unwrap_or_default(),
            sections: Sections::read(text),
        })
    }

    /// Returns what it says.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Says whether it says nothing, and holds no comment either.
    pub(super) fn is_void(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Returns the line of a value.
    pub(super) fn line_of(&self, way: &[Step]) -> usize {
        let pairs = self.sections.iter().flat_map(|section| &section.pairs);
        let headers = self.sections.iter().map(|it| (&it.way, it.range.start));
        let all = || {
            let pairs = pairs.clone().map(|it| (&it.way, it.range.start));
            headers.clone().chain(pairs)
        };
        // What is at the way or below it, else what comes nearest above.
        let below = all().filter(|(found, _)| !found.is_empty() && found.starts_with(way));
        let above = all().filter(|(found, _)| way.starts_with(found));
        let at = below
            .map(|(_, start)| start)
            .min()
            .or_else(|| above.max_by_key(|(found, _)| found.len()).map(|(_, at)| at));
        line_at(self.text, at.unwrap_or(0))
    }

    /// Returns the text of a value, where it is one.
    pub(super) fn text_at(&self, way: &[Step]) -> Option<Range<usize>> {
        let mut pairs = self.sections.iter().flat_map(|section| &section.pairs);
        pairs.find(|it| it.way == way).map(|it| it.value.clone())
    }

    /// Says how to put a part in: at the end, where a table of its own always may stand.
    pub(super) fn insertion(&self, part: &Part) -> Insertion {
        let newline = newline_of(self.text);
        let closed = self.text.is_empty() || self.text.ends_with('\n');
        let mut before = String::new();
        if !closed {
            before.push_str(newline);
        }
        if !self.text.is_empty() {
            before.push_str(newline);
        }
        Insertion {
            comma: None,
            at: self.text.len(),
            before,
            body: table(&part.at.join("."), part.kind == Kind::Hook, &part.value).join(newline),
            behind: if closed { newline } else { "" }.to_owned(),
            made: 0,
        }
    }

    /// Says how to take out the tables at the end of a way; `None` where it is no table.
    pub(super) fn removal(&self, way: &[Step], margins: &Margins) -> Option<Removal> {
        let first = self.sections.iter().position(|it| it.way == way)?;
        let tables = self.sections[first..]
            .iter()
            .take_while(|it| it.way.starts_with(way));
        let start = self.sections[first].range.start;
        let end = tables.last()?.range.end;
        let (before, behind) = (margins.before.as_str(), margins.behind.as_str());
        let framed = !before.is_empty() || !behind.is_empty();
        if framed
            && self.text[..start].ends_with(before)
            && self.text[end..].starts_with(behind)
            // Something may have been written behind it on its line since.
            && (behind.ends_with('\n') || self.text[end + behind.len()..].is_empty())
        {
            return Some(Removal::one(start - before.len()..end + behind.len()));
        }
        let rest = &self.text[end..];
        let end = rest.find('\n').map_or(self.text.len(), |at| end + at + 1);
        let line = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        // The empty line before it is one that init wrote.
        let above = &self.text[..line];
        let start = ["\r\n", "\n"]
            .iter()
            .find_map(|newline| {
                let rest = above.strip_suffix(newline)?;
                rest.ends_with('\n').then_some(rest.len())
            })
            .unwrap_or(line);
        Some(Removal::one(start..end))
    }
}

/// Collects sections from what the parser tells.
struct Sections<'a> {
    source: Source<'a>,
    done: Vec<Section>,
    /// How many tables of an array there have been.
    counts: BTreeMap<Way, usize>,
    state: State,
    keys: Vec<String>,
    /// Where the header or key began.
    start: usize,
    /// Where the value began.
    value: usize,
    depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    Header { array: bool },
    Key,
    Value,
}

impl<'a> Sections<'a> {
    /// Reads the sections of a text that is known to be TOML.
    fn read(text: &'a str) -> Vec<Section> {
        let source = Source::new(text);
        let tokens = source.lex().into_vec();
        let mut reader = Self {
            source,
            done: vec![Section::default()],
            counts: BTreeMap::new(),
            state: State::Between,
            keys: Vec::new(),
            start: 0,
            value: 0,
            depth: 0,
        };
        parse_document(&tokens, &mut |event| reader.take(event), &mut ());
        reader.done
    }

    fn take(&mut self, event: Event) {
        let (kind, span) = (event.kind(), event.span());
        match (self.state, kind) {
            (State::Between, EventKind::StdTableOpen | EventKind::ArrayTableOpen) => {
                self.start = span.start();
                self.keys.clear();
                let array = kind == EventKind::ArrayTableOpen;
                self.state = State::Header { array };
            }
            (State::Between, EventKind::SimpleKey) => {
                self.start = span.start();
                self.keys.clear();
                self.key(event);
                self.state = State::Key;
            }
            (State::Header { .. } | State::Key, EventKind::SimpleKey) => self.key(event),
            (State::Header { array }, EventKind::StdTableClose | EventKind::ArrayTableClose) => {
                let way = self.header(array);
                self.done.push(Section {
                    way,
                    range: self.start..span.end(),
                    pairs: Vec::new(),
                });
                self.state = State::Between;
            }
            (State::Key, EventKind::KeyValSep) => {
                self.state = State::Value;
                self.depth = 0;
            }
            (State::Value, EventKind::ArrayOpen | EventKind::InlineTableOpen) => {
                if self.depth == 0 {
                    self.value = span.start();
                }
                self.depth += 1;
            }
            (State::Value, EventKind::ArrayClose | EventKind::InlineTableClose) => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.pair(span.end());
                }
            }
            (State::Value, EventKind::Scalar) if self.depth == 0 => {
                self.value = span.start();
                self.pair(span.end());
            }
            _ => {}
        }
    }

    fn key(&mut self, event: Event) {
        let mut key = String::new();
        if let Some(raw) = self.source.get(event) {
            raw.decode_key(&mut key, &mut ());
        }
        self.keys.push(key);
    }

    fn pair(&mut self, end: usize) {
        let section = self.done.last_mut().expect("there is one from the start");
        let keys = self.keys.drain(..).map(Step::Key);
        section.pairs.push(Pair {
            way: section.way.iter().cloned().chain(keys).collect(),
            range: self.start..end,
            value: self.value..end,
        });
        section.range.end = end;
        self.state = State::Between;
    }

    /// Returns the way of a header: below an array of tables, that of its last one.
    fn header(&mut self, array: bool) -> Way {
        let mut way = Way::new();
        let last = self.keys.len().saturating_sub(1);
        for (at, key) in self.keys.drain(..).enumerate() {
            way.push(Step::Key(key));
            if at == last && array {
                let count = self.counts.entry(way.clone()).or_default();
                *count += 1;
            }
            if let Some(count) = self.counts.get(&way) {
                way.push(Step::At(count - 1));
            }
        }
        way
    }
}

/// Writes a table, and the tables below it.
fn table(name: &str, in_array: bool, value: &Value) -> Vec<String> {
    let (open, close) = if in_array { ("[[", "]]") } else { ("[", "]") };
    let mut lines = vec![format!("{open}{name}{close}")];
    let mut below = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Array(elements) if elements.iter().any(Value::is_object) => {
                let name = format!("{name}.{key}");
                below.extend(elements.iter().flat_map(|it| table(&name, true, it)));
            }
            plain => {
                let plain = ::toml::Value::try_from(plain).expect("texts, numbers and lists");
                lines.push(format!("{key} = {plain}"));
            }
        }
    }
    lines.extend(below);
    lines
}
