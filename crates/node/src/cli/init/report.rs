//! What init says: the changes before, and what became of them.

use earshot_checkout::{Checkout, CheckoutKind};
use serde_json::{Map, Value, json};

use super::{
    super::{
        printer::{Printer, Tone},
        program::Program,
        shown::shown,
    },
    client::Client,
    diff::{Line, diff},
    place::Refusal,
    plan::{Change, FilePlan, InGit},
};

/// What a run of init found and did.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) printer: Printer,
    pub(super) checkout: &'a Checkout,
    pub(super) program: &'a Program,
    pub(super) undo: bool,
    /// Whether there is a record of the checkout.
    pub(super) recorded: bool,
    pub(super) plans: &'a [FilePlan],
}

impl Report<'_> {
    /// Writes what would be done, file by file.
    pub(super) fn plan(&self) -> String {
        let mut text = String::new();
        for plan in self.plans {
            text.push_str(&self.heading(plan));
            for note in &plan.notes {
                text.push_str(&format!("  {note}\n"));
            }
            match &plan.change {
                Change::Nothing => {}
                Change::Refused(refusal) => {
                    text.push_str(&format!("  {}\n", sentence_of(refusal)));
                    text.push_str(&format!("  hint: {}\n", refusal.remedy));
                }
                Change::Write(_) | Change::Remove(_) => text.push_str(&self.lines(plan)),
            }
        }
        text.push_str(&self.about_program());
        if self.undo && !self.recorded {
            text.push_str(
                "\nThere is no record of what init wrote here: what it would write is taken for its \
                 own.\n",
            );
        }
        text
    }

    fn heading(&self, plan: &FilePlan) -> String {
        let there = plan.place.as_ref().is_some_and(|it| it.text.is_some());
        let what = match (&plan.change, self.undo) {
            (Change::Nothing, false) => "nothing to do",
            (Change::Nothing, true) => "nothing to undo",
            (Change::Refused(_), _) => "left alone",
            (Change::Remove(_), _) => "removed",
            (Change::Write(_), _) if there => "changed",
            (Change::Write(_), _) => "new",
        };
        let (client, path) = (plan.file.client.name(), plan.file.path);
        let heading = format!("{path} ({client}): {what}");
        let tone = match plan.change {
            Change::Refused(_) => Tone::Alarm,
            Change::Nothing => Tone::Faint,
            Change::Write(_) | Change::Remove(_) => Tone::Strong,
        };
        format!("{}\n", self.printer.tone(tone, &heading))
    }

    fn lines(&self, plan: &FilePlan) -> String {
        let (old, new) = texts(plan);
        let mut text = String::new();
        for line in diff(&old, new) {
            text.push_str(&match line {
                Line::Same(line) => self
                    .printer
                    .tone(Tone::Faint, &format!("    {}", visible(line))),
                Line::Old(line) => self
                    .printer
                    .tone(Tone::Alarm, &format!("  - {}", visible(line))),
                Line::New(line) => format!("  + {}", visible(line)).trim_end().to_owned(),
                Line::Gap => self.printer.tone(Tone::Faint, "    …"),
            });
            text.push('\n');
        }
        text
    }

    /// Says which executable the files name, and why.
    fn about_program(&self) -> String {
        if self.undo || !self.plans.iter().any(FilePlan::changes) {
            return String::new();
        }
        match self.program {
            Program::OnPath => {
                "\nThe clients will start `earshot`, which is this executable on your PATH.\n"
                    .to_owned()
            }
            Program::At { path, other } => {
                let path = visible(&path.to_string_lossy());
                let why = match other {
                    Some(other) => {
                        format!(
                            "`earshot` on your PATH is {}",
                            visible(&other.to_string_lossy())
                        )
                    }
                    None => "`earshot` is not on your PATH".to_owned(),
                };
                format!(
                    "\nThe clients will start {path}: {why}. Other machines do not have that path: put \
                     the executable on the PATH before you share these files.\n"
                )
            }
        }
    }

    /// Writes what became of it.
    pub(super) fn done(&self) -> String {
        let changed: Vec<&FilePlan> = self.plans.iter().filter(|it| it.changes()).collect();
        if changed.is_empty() {
            let left = self.plans.iter().any(is_refused);
            return match (left, self.undo) {
                (true, _) => "\nNothing was written.\n".to_owned(),
                (false, false) => "\nAll is in place already: nothing was written.\n".to_owned(),
                (false, true) => "\nThere is nothing of init's here.\n".to_owned(),
            };
        }
        let list = |plans: &[&FilePlan]| {
            let paths: Vec<&str> = plans.iter().map(|it| it.file.path).collect();
            paths.join(", ")
        };
        let (removed, written): (Vec<&FilePlan>, Vec<&FilePlan>) = changed
            .iter()
            .partition(|it| matches!(it.change, Change::Remove(_)));
        let mut text = "\n".to_owned();
        for (did, plans) in [("Wrote", &written), ("Removed", &removed)] {
            if !plans.is_empty() {
                text.push_str(&format!("{did} {}.\n", list(plans)));
            }
        }
        if self.undo {
            return text;
        }
        for (in_git, means) in [
            (
                InGit::Tracked,
                "Tracked by git, so this is a change to commit",
            ),
            (
                InGit::Untracked,
                "Not in git: commit them for every clone, or name them in info/exclude of the repository's git folder",
            ),
            (InGit::Ignored, "Ignored by git, so for this checkout alone"),
        ] {
            let of_it: Vec<&FilePlan> = written
                .iter()
                .copied()
                .filter(|it| it.in_git == in_git)
                .collect();
            if !of_it.is_empty() {
                text.push_str(&format!("{means}: {}.\n", list(&of_it)));
            }
        }
        if self.checkout.kind == CheckoutKind::LinkedWorktree {
            text.push_str(
                "This is one worktree of several: the others have these files once they are \
                 committed, or run init themselves.\n",
            );
        }
        for client in Client::ALL {
            if written.iter().any(|it| it.file.client == client) {
                text.push_str(&format!("{} {}.\n", client.name(), client.consent()));
            }
        }
        text
    }

    /// Names the files that were left alone, and the remedy of the first.
    pub(super) fn left_alone(&self) -> Option<(String, String)> {
        let refused: Vec<(&str, &Refusal)> = self
            .plans
            .iter()
            .filter_map(|plan| match &plan.change {
                Change::Refused(refusal) => Some((plan.file.path, refusal)),
                Change::Nothing | Change::Write(_) | Change::Remove(_) => None,
            })
            .collect();
        let (path, first) = refused.first()?;
        let more = match refused.len() - 1 {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let message = format!("{path} was left alone: {}{more}", sentence_of(first));
        Some((message, first.remedy.clone()))
    }

    /// Writes plan and outcome for a program.
    pub(super) fn json(&self, written: bool) -> Value {
        let files: Vec<Value> = self.plans.iter().map(|plan| self.file(plan)).collect();
        json!({
            "root": self.checkout.root.to_string_lossy(),
            "command": self.program.word(),
            "undo": self.undo,
            "recorded": self.recorded,
            "written": written,
            "files": files,
        })
    }

    fn file(&self, plan: &FilePlan) -> Value {
        let there = plan.place.as_ref().is_some_and(|it| it.text.is_some());
        let action = match &plan.change {
            Change::Nothing => "none",
            Change::Refused(_) => "refused",
            Change::Remove(_) => "remove",
            Change::Write(_) if there => "change",
            Change::Write(_) => "create",
        };
        let mut file = Map::new();
        file.insert("path".to_owned(), json!(plan.file.path));
        file.insert("client".to_owned(), json!(plan.file.client.word()));
        file.insert("action".to_owned(), json!(action));
        file.insert("git".to_owned(), json!(plan.in_git.word()));
        if !plan.notes.is_empty() {
            file.insert("notes".to_owned(), json!(plan.notes));
        }
        if plan.changes() {
            file.insert("diff".to_owned(), json!(self.lines(plan)));
        }
        if let Change::Refused(refusal) = &plan.change {
            let mut error = Map::new();
            error.insert("message".to_owned(), json!(refusal.why));
            error.insert("remedy".to_owned(), json!(refusal.remedy));
            if let Some(line) = refusal.line {
                error.insert("line".to_owned(), json!(line));
            }
            file.insert("error".to_owned(), Value::Object(error));
        }
        Value::Object(file)
    }
}

fn is_refused(plan: &FilePlan) -> bool {
    matches!(plan.change, Change::Refused(_))
}

fn sentence_of(refusal: &Refusal) -> String {
    match refusal.line {
        Some(line) => format!("line {line}: {}", visible(&refusal.why)),
        None => visible(&refusal.why),
    }
}

/// Returns the text of a file now, and as it is to be.
fn texts(plan: &FilePlan) -> (String, &str) {
    let old = plan.place.as_ref().and_then(|it| it.text.clone());
    let new = match &plan.change {
        Change::Write(text) => text.as_str(),
        Change::Nothing | Change::Remove(_) | Change::Refused(_) => "",
    };
    (old.unwrap_or_default(), new)
}

/// Writes a line of a file that anybody may have written so that it does nothing to a terminal.
fn visible(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']).replace('\t', "    ");
    shown(&line).into_owned()
}
