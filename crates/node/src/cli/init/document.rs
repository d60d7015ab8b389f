//! A configuration file of a client, in either language: what is in it, and what changes it.

use std::ops::Range;

use serde_json::Value;

use super::{
    grown::{Grown, without},
    json::Json,
    part::{Found, Kind, Part, Step, Way},
    toml::Toml,
};

/// What a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// JSON, with comments and trailing commas where they are there.
    Json,
    /// TOML.
    Toml,
}

/// A file that was read.
#[derive(Debug)]
enum Document<'a> {
    Json(Json<'a>),
    Toml(Toml<'a>),
}

/// Why a file cannot be changed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// The line, from 1.
    pub(super) line: usize,
    /// What is wrong there, as a sentence without its full stop.
    pub(super) why: String,
    /// What to do about it, as a sentence.
    pub(super) remedy: &'static str,
}

/// What to do about an inline table or array.
const AS_TABLES: &str = "Write it as tables, [mcp_servers.NAME] and [[hooks.SessionStart]].";

/// What to do about a file that cannot be read.
pub(super) const CORRECT_IT: &str = "Correct it, or move it away, and run the command again.";

/// How to put something in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Insertion {
    /// Where a comma must be put first: behind what was last so far.
    pub(super) comma: Option<usize>,
    /// Where the rest goes.
    pub(super) at: usize,
    /// Blanks before it.
    pub(super) before: String,
    /// What is put in.
    pub(super) body: String,
    /// Blanks behind it, and a comma where the file has trailing ones.
    pub(super) behind: String,
    /// How many of the names above it are put in with it.
    pub(super) made: usize,
}

/// What was put around something, to be taken out with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Margins {
    /// Before it.
    pub(super) before: String,
    /// Behind it.
    pub(super) behind: String,
    /// How many names above it were put in with it.
    pub(super) made: usize,
}

/// What to take out: ranges in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) ranges: Vec<Range<usize>>,
}

impl Removal {
    /// Takes out one range.
    pub(super) fn one(range: Range<usize>) -> Self {
        Self {
            ranges: std::iter::once(range).collect(),
        }
    }
}

/// What became of one part in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// It was put in.
    Put(Margins),
    /// It names another executable now.
    Updated,
    /// It was there.
    There,
    /// Somebody's own entry, in this line, leads to earshot as well, and stays.
    Kept(usize),
}

impl Insertion {
    pub(super) fn made(self, made: usize) -> Self {
        Self { made, ..self }
    }
}

impl Part {
    /// Returns the names of what holds it.
    pub(super) fn holders(&self) -> &[String] {
        match self.kind {
            Kind::Server => &self.at[..self.at.len() - 1],
            Kind::Hook => &self.at,
        }
    }
}

impl<'a> Document<'a> {
    fn read(language: Language, text: &'a str) -> Result<Self, Broken> {
        Ok(match language {
            Language::Json => Self::Json(Json::read(text)?),
            Language::Toml => Self::Toml(Toml::read(text)?),
        })
    }

    fn value(&self) -> &Value {
        match self {
            Self::Json(it) => it.value(),
            Self::Toml(it) => it.value(),
        }
    }

    fn line_of(&self, way: &[Step]) -> usize {
        match self {
            Self::Json(it) => it.line_of(way),
            Self::Toml(it) => it.line_of(way),
        }
    }

    fn text_at(&self, way: &[Step]) -> Option<Range<usize>> {
        match self {
            Self::Json(it) => it.text_at(way),
            Self::Toml(it) => it.text_at(way),
        }
    }

    fn insertion(&self, part: &Part) -> Insertion {
        match self {
            Self::Json(it) => it.insertion(part),
            Self::Toml(it) => it.insertion(part),
        }
    }

    fn removal(&self, way: &[Step], may_go: usize, margins: &Margins) -> Option<Removal> {
        match self {
            Self::Json(it) => it.removal(way, may_go, margins),
            Self::Toml(it) => it.removal(way, margins),
        }
    }

    fn is_void(&self) -> bool {
        match self {
            Self::Json(it) => it.is_void(),
            Self::Toml(it) => it.is_void(),
        }
    }

    fn broken(&self, way: &[Step], why: String, remedy: &'static str) -> Broken {
        Broken {
            line: self.line_of(way),
            why,
            remedy,
        }
    }
}

/// Sees to it that a part is in a text.
///
/// # Errors
/// Where the text stands against it.
pub(super) fn put(language: Language, text: &mut Grown, part: &Part) -> Result<Done, Broken> {
    let read = text.text().to_owned();
    let document = Document::read(language, &read)?;
    let done = match part.find(document.value()) {
        Found::Same(_) => return Ok(Done::There),
        Found::Kept(way) => return Ok(Done::Kept(document.line_of(&way))),
        Found::Foreign(way) => {
            let why = format!(
                "`{}` is there already and does not start earshot",
                part.name()
            );
            let remedy = "Rename that entry or remove it, and run the command again.";
            return Err(document.broken(&way, why, remedy));
        }
        Found::Misfit { way, expected } => {
            let name = name_of(&way);
            return Err(document.broken(&way, format!("{name} is not {expected}"), CORRECT_IT));
        }
        Found::Other { command, .. } => {
            let range = document.text_at(&command).ok_or_else(|| {
                let why = format!("`{}` is written inline", part.name());
                document.broken(&command, why, AS_TABLES)
            })?;
            let (before, behind) = (&read[..range.start], &read[range.end..]);
            let command = quoted(language, part.command());
            *text = Grown::new(format!("{before}{command}{behind}"));
            Done::Updated
        }
        Found::Nothing => Done::Put(insert(text, document.insertion(part))),
    };
    // What was put in must be found again: a table that is written inline takes no other form.
    let again = Document::read(language, text.text())
        .ok()
        .map(|document| part.find(document.value()));
    if matches!(again, Some(Found::Same(_))) {
        return Ok(done);
    }
    let way: Way = part.at.iter().cloned().map(Step::Key).collect();
    let way = (0..=way.len())
        .rev()
        .map(|depth| &way[..depth])
        .find(|way| is_there(document.value(), way))
        .unwrap_or_default();
    let why = format!(
        "{} is written inline, which takes no further entry",
        name_of(way)
    );
    Err(document.broken(way, why, AS_TABLES))
}

/// Inserts what was asked for, and returns what is around it.
fn insert(text: &mut Grown, insertion: Insertion) -> Margins {
    let Insertion {
        comma,
        at,
        before,
        body,
        behind,
        made,
    } = insertion;
    text.insert(at, &format!("{before}{body}{behind}"));
    if let Some(comma) = comma {
        text.insert(comma, ",");
    }
    Margins {
        before,
        behind,
        made,
    }
}

/// Writes a text as a value.
fn quoted(language: Language, text: &str) -> String {
    match language {
        Language::Json => Value::from(text).to_string(),
        Language::Toml => ::toml::Value::from(text).to_string(),
    }
}

/// What became of a part that was to be taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is out.
    Out(String),
    /// It was not there.
    Absent,
    /// It was edited, or is written in a way that hides it, and stays: in this line.
    Stays(usize),
}

/// Takes a part out of a text in which other things may have changed.
///
/// `part` is what was put in; with `any`, whatever init would write there goes.
///
/// # Errors
/// Where the text cannot be read.
pub(super) fn take(
    language: Language,
    text: &str,
    part: &Part,
    margins: Option<&Margins>,
) -> Result<Taken, Broken> {
    let document = Document::read(language, text)?;
    let way = match part.find(document.value()) {
        Found::Same(way) | Found::Other { way, .. } => way,
        Found::Kept(way) | Found::Foreign(way) => {
            let line = document.line_of(&way);
            return Ok(margins.map_or(Taken::Absent, |_| Taken::Stays(line)));
        }
        Found::Nothing | Found::Misfit { .. } => return Ok(Taken::Absent),
    };
    let stays = Taken::Stays(document.line_of(&way));
    let still = at(document.value(), &way).is_some_and(|value| match margins {
        Some(_) => is_as_put(part, value),
        None => part.is_own(value),
    });
    if !still {
        return Ok(stays);
    }
    let may_go = margins.map_or_else(|| part.holders().len(), |margins| margins.made);
    let margins = margins.cloned().unwrap_or_default();
    let Some(removal) = document.removal(&way, may_go, &margins) else {
        return Ok(stays);
    };
    let Some(rest) = without(text, &removal.ranges) else {
        return Ok(stays);
    };
    Ok(match Document::read(language, &rest) {
        Ok(_) => Taken::Out(rest),
        Err(_) => stays,
    })
}

/// Says whether a text says nothing, and holds no comment either.
pub(super) fn is_void(language: Language, text: &str) -> bool {
    Document::read(language, text).is_ok_and(|document| document.is_void())
}

/// Says whether a value is what was put in: the part, or its one hook beside others' hooks.
fn is_as_put(part: &Part, value: &Value) -> bool {
    *value == part.value || part.value.pointer("/hooks/0") == Some(value)
}

fn at<'v>(value: &'v Value, way: &[Step]) -> Option<&'v Value> {
    way.iter().try_fold(value, |value, step| match step {
        Step::Key(name) => value.get(name),
        Step::At(at) => value.get(at),
    })
}

fn is_there(value: &Value, way: &[Step]) -> bool {
    at(value, way).is_some()
}

fn name_of(way: &[Step]) -> String {
    if way.is_empty() {
        return "the document".to_owned();
    }
    let names: Vec<String> = way
        .iter()
        .map(|step| match step {
            Step::Key(name) => name.clone(),
            Step::At(at) => at.to_string(),
        })
        .collect();
    format!("`{}`", names.join("."))
}
