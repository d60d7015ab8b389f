//! What init would do to each file, before anything is done.

use std::path::PathBuf;

use earshot_checkout::{Checkout, is_ignored, is_tracked};

use super::{
    client::ClientFile,
    document::{self, Broken, Done, Margins, Taken},
    grown::Grown,
    part::Part,
    place::{Place, Refusal},
    record::{Exact, FileRecord, PartRecord, Record},
};

/// The mark that some editors begin a UTF-8 file with.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What would become of one file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FilePlan {
    /// The file.
    pub(super) file: ClientFile,
    /// Where it is and what is in it; `None` where that could not be found out.
    pub(super) place: Option<Place>,
    /// What is done to it.
    pub(super) change: Change,
    /// What a person should know about it.
    pub(super) notes: Vec<String>,
    /// What is remembered of it afterwards.
    pub(super) record: Option<FileRecord>,
    /// What git makes of it.
    pub(super) in_git: InGit,
}

/// What is done to a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// Nothing: it is as it should be.
    Nothing,
    /// It is written.
    Write(String),
    /// It is removed, with the folders that were made for it.
    Remove(Vec<PathBuf>),
    /// It is left alone.
    Refused(Refusal),
}

/// What git makes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InGit {
    /// It is in the index.
    Tracked,
    /// It is passed over.
    Ignored,
    /// It is shown as new.
    Untracked,
}

impl InGit {
    /// Returns the word for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Tracked => "tracked",
            Self::Ignored => "ignored",
            Self::Untracked => "untracked",
        }
    }

    fn of(checkout: &Checkout, path: &str) -> Self {
        let path = checkout.root.join(path);
        if is_tracked(checkout, &path) {
            Self::Tracked
        } else if is_ignored(checkout, &path) {
            Self::Ignored
        } else {
            Self::Untracked
        }
    }
}

impl FilePlan {
    fn new(file: &ClientFile, known: Option<&FileRecord>, in_git: InGit) -> Self {
        Self {
            file: file.clone(),
            place: None,
            change: Change::Nothing,
            notes: Vec::new(),
            record: known.cloned(),
            in_git,
        }
    }

    /// Says whether something is done to the file.
    pub(super) const fn changes(&self) -> bool {
        matches!(self.change, Change::Write(_) | Change::Remove(_))
    }

    fn refused(mut self, refusal: Refusal) -> Self {
        self.change = Change::Refused(refusal);
        self
    }

    /// Changes the file to this text, where that is another one.
    fn write(&mut self, mark: &str, text: &str) {
        let text = format!("{mark}{text}");
        let now = self.place.as_ref().and_then(|place| place.text.as_ref());
        if now != Some(&text) {
            self.change = Change::Write(text);
        }
    }
}

/// Plans to put into a file what belongs there.
pub(super) fn plan_init(
    checkout: &Checkout,
    file: &ClientFile,
    known: Option<&FileRecord>,
) -> FilePlan {
    let plan = FilePlan::new(file, known, InGit::of(checkout, file.path));
    let place = match Place::look(checkout, file.path) {
        Ok(place) => place,
        Err(refusal) => return plan.refused(refusal),
    };
    match put_parts(plan.clone(), place, known) {
        Ok(plan) => plan,
        Err(refusal) => plan.refused(refusal),
    }
}

fn put_parts(
    mut plan: FilePlan,
    place: Place,
    known: Option<&FileRecord>,
) -> Result<FilePlan, Refusal> {
    let now = place.text.clone();
    let (mark, body) = marked(now.as_deref().unwrap_or_default());
    let untouched = known
        .and_then(|known| known.exact.as_ref())
        .and_then(|exact| exact.undone(body));
    // Where nobody edited the file since, it is done anew from what it was before.
    let base = untouched.unwrap_or_else(|| body.to_owned());
    let known_parts = known.map_or(&[][..], |known| known.parts.as_slice());
    let (mut grown, mut parts, mut exact) = (Grown::new(base.clone()), Vec::new(), true);
    for part in &plan.file.parts {
        let known_part = known_parts.iter().find(|it| it.is_of(part));
        match document::put(plan.file.language, &mut grown, part).map_err(broken)? {
            Done::Put(margins) => parts.push(PartRecord::of(part, &margins)),
            Done::Updated => {
                exact = false;
                let margins = known_part.map_or_else(
                    || Margins {
                        made: part.holders().len(),
                        ..Margins::default()
                    },
                    PartRecord::margins,
                );
                parts.push(PartRecord::of(part, &margins));
            }
            Done::There => {
                if let Some(known_part) = known_part {
                    exact = false;
                    parts.push(known_part.clone());
                }
            }
            Done::Kept(line) => plan.notes.push(format!(
                "`{}` in line {line} starts earshot in its own way, and is left as it is",
                part.name()
            )),
        }
    }
    let missing = place.missing().to_vec();
    plan.place = Some(place);
    plan.write(mark, grown.text());
    if !plan.changes() {
        return Ok(plan);
    }
    if let Some(place) = &plan.place {
        place.refuse_read_only()?;
    }
    plan.record = Some(FileRecord {
        created: now.is_none() || known.is_some_and(|known| known.created),
        folders: match known {
            Some(known) if now.is_some() => known.folders.clone(),
            Some(_) | None => missing,
        },
        exact: exact.then(|| Exact::of(&base, &grown)),
        parts,
    });
    Ok(plan)
}

/// Plans to take out of a file what init put in.
///
/// Without any record of the checkout, what init would have put in is taken for its own.
pub(super) fn plan_undo(
    checkout: &Checkout,
    file: &ClientFile,
    record: Option<&Record>,
) -> FilePlan {
    let known = record.and_then(|record| record.files.get(file.path));
    let mut plan = FilePlan::new(file, known, InGit::of(checkout, file.path));
    if record.is_some() && known.is_none() {
        return plan;
    }
    let place = match Place::look(checkout, file.path) {
        Ok(place) => place,
        Err(refusal) => return plan.refused(refusal),
    };
    let Some(text) = place.text.clone() else {
        plan.record = None;
        if known.is_some() {
            plan.notes.push("it is gone already".to_owned());
        }
        return plan;
    };
    plan.place = Some(place);
    let done = match known {
        Some(known) => undo_known(plan.clone(), known, &text),
        None => undo_unknown(plan.clone(), &text),
    };
    let read_only = |plan: FilePlan| match (&plan.place, plan.changes()) {
        (Some(place), true) => place.refuse_read_only().map(|()| plan),
        _ => Ok(plan),
    };
    match done.and_then(read_only) {
        Ok(done) => done,
        Err(refusal) => plan.refused(refusal),
    }
}

fn undo_known(mut plan: FilePlan, known: &FileRecord, text: &str) -> Result<FilePlan, Refusal> {
    let (mark, body) = marked(text);
    plan.record = None;
    if let Some(before) = known.exact.as_ref().and_then(|it| it.undone(body)) {
        if known.created {
            plan.change = Change::Remove(known.folders.clone());
        } else {
            plan.write(mark, &before);
        }
        return Ok(plan);
    }
    let note = "it was edited since; only what init put in goes";
    plan.notes.push(note.to_owned());
    let mut rest = body.to_owned();
    for (part, known_part) in own_parts(&plan.file, known) {
        let (part, margins) = (known_part.part(part), known_part.margins());
        match document::take(plan.file.language, &rest, &part, Some(&margins)).map_err(broken)? {
            Taken::Out(without) => rest = without,
            Taken::Absent => plan
                .notes
                .push(format!("`{}` is gone already", part.name())),
            Taken::Stays(line) => plan.notes.push(format!(
                "`{}` in line {line} was edited itself, and stays",
                part.name()
            )),
        }
    }
    if known.created && rest != body && document::is_void(plan.file.language, &rest) {
        plan.change = Change::Remove(known.folders.clone());
    } else {
        plan.write(mark, &rest);
    }
    Ok(plan)
}

/// Lists the parts of a file that init put in, the last one first.
fn own_parts<'a>(
    file: &'a ClientFile,
    known: &'a FileRecord,
) -> impl Iterator<Item = (&'a Part, &'a PartRecord)> {
    file.parts.iter().rev().filter_map(|part| {
        let known_part = known.parts.iter().find(|it| it.is_of(part))?;
        Some((part, known_part))
    })
}

fn undo_unknown(mut plan: FilePlan, text: &str) -> Result<FilePlan, Refusal> {
    let (mark, body) = marked(text);
    let mut rest = body.to_owned();
    for part in plan.file.parts.iter().rev() {
        match document::take(plan.file.language, &rest, part, None).map_err(broken)? {
            Taken::Out(without) => rest = without,
            Taken::Absent => {}
            Taken::Stays(line) => plan.notes.push(format!(
                "`{}` in line {line} is not written as init writes it, and stays",
                part.name()
            )),
        }
    }
    let folders = PathBuf::from(plan.file.path);
    let folders = folders.parent().filter(|it| *it != PathBuf::new());
    if rest != body && plan.in_git != InGit::Tracked && document::is_void(plan.file.language, &rest)
    {
        plan.change = Change::Remove(folders.map(PathBuf::from).into_iter().collect());
    } else {
        plan.write(mark, &rest);
    }
    Ok(plan)
}

/// Splits a byte order mark off a text.
fn marked(text: &str) -> (&'static str, &str) {
    match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", text),
    }
}

fn broken(broken: Broken) -> Refusal {
    Refusal {
        line: Some(broken.line),
        ..Refusal::new(broken.why, broken.remedy)
    }
}
