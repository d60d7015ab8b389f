//! `earshot init`: connects clients to the node of a checkout, in their own files.
//!
//! It plans all changes first, shows them, and writes when somebody agreed. Text of others is never
//! touched: what init puts in is inserted, remembered outside of the work tree, and taken out again
//! by `--undo`. Each file is judged and written by itself, so that one that must be left alone does
//! not keep the others.

mod client;
mod diff;
mod document;
mod grown;
mod json;
mod part;
mod place;
mod plan;
mod record;
mod report;
#[cfg(test)]
mod tests;
mod toml;

use std::{
    io::{BufRead as _, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::ArgMatches;
use earshot_capability::Code;
use earshot_checkout::{Checkout, CheckoutKind};

use self::{
    client::Client,
    place::changed,
    plan::{Change, FilePlan, plan_init, plan_undo},
    record::Record,
    report::Report,
};
use super::{
    context::{Context, blocking},
    error::{CliError, Exit},
    printer::{Format, print, print_json},
    program::Program,
};
use crate::{
    lease::{Locked, lock_within},
    station::EnsureError,
};

/// How long another init of the same checkout is waited for: it holds the lock only to write.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The words of all clients on the command line.
pub(super) fn client_words() -> Vec<&'static str> {
    Client::ALL.map(Client::word).to_vec()
}

/// What is asked for.
#[derive(Debug, Clone)]
struct Wish {
    undo: bool,
    yes: bool,
    clients: Vec<Client>,
}

impl Wish {
    fn of(matches: &ArgMatches) -> Self {
        let named: Vec<&String> = matches
            .get_many("client")
            .map(Iterator::collect)
            .unwrap_or_default();
        let clients = Client::ALL
            .into_iter()
            .filter(|it| named.is_empty() || named.iter().any(|name| *name == it.word()));
        Self {
            undo: matches.get_flag("undo"),
            yes: matches.get_flag("yes"),
            clients: clients.collect(),
        }
    }
}

/// Runs `earshot init`.
///
/// # Errors
/// Why nothing was written, or which files were left alone.
pub(super) async fn init(context: &Context, matches: &ArgMatches) -> Result<ExitCode, CliError> {
    let (context, wish) = (context.clone(), Wish::of(matches));
    blocking(move || Init::open(&context, wish)?.run()).await?
}

/// One run in one checkout.
struct Init {
    context: Context,
    wish: Wish,
    checkout: Checkout,
    program: Program,
    /// What is remembered of this checkout.
    record_file: PathBuf,
    lock_file: PathBuf,
}

impl Init {
    fn open(context: &Context, wish: Wish) -> Result<Self, CliError> {
        let checkout = context.station()?.checkout;
        if checkout.kind == CheckoutKind::Folder {
            let message = format!("{} is in no git checkout", checkout.root.display());
            let remedy = "Run this in a checkout, or name one with --root.".to_owned();
            return Err(refused(message, remedy));
        }
        let program = Program::own(context.environment.search_path.as_deref());
        if !program.is_text() {
            let message = format!(
                "the path of this executable is not UTF-8: {}",
                program.word()
            );
            let remedy = "Move it to a path that is, or put it on your PATH.".to_owned();
            return Err(refused(message, remedy));
        }
        let folder = context.places()?.prepare_clients_folder()?;
        let id = checkout.id();
        Ok(Self {
            record_file: folder.join(format!("{id}.json")),
            lock_file: folder.join(format!("{id}.lock")),
            context: context.clone(),
            wish,
            checkout,
            program,
        })
    }

    fn run(&self) -> Result<ExitCode, CliError> {
        let locked = if self.wish.yes {
            Some(self.lock()?)
        } else {
            None
        };
        let (mut record, mut plans) = self.plan();
        let text = self.context.printer.format() == Format::Text;
        if text {
            print(&self.report(record.is_some(), &plans).plan());
        }
        let anything = plans.iter().any(FilePlan::changes);
        if anything {
            let _locked = if let Some(locked) = locked {
                locked
            } else {
                self.ask(record.is_some(), &plans)?;
                let locked = self.lock()?;
                let (record_now, plans_now) = self.plan();
                if plans_now != plans {
                    let message = "nothing was written: a file was changed meanwhile".to_owned();
                    return Err(refused(message, changed().remedy));
                }
                record = record_now;
                locked
            };
            self.write(record.clone().unwrap_or_default(), &mut plans)?;
        } else if self.wish.undo && plans.iter().any(|it| is_to_forget(record.as_ref(), it)) {
            // Nothing of it is there any more, so nobody need agree.
            let _locked = locked.map_or_else(|| self.lock(), Ok)?;
            self.write(record.clone().unwrap_or_default(), &mut plans)?;
        }
        let report = self.report(record.is_some(), &plans);
        if text {
            print(&report.done());
        } else {
            print_json(&report.json(anything));
        }
        match report.left_alone() {
            Some((message, remedy)) => Err(refused(message, remedy)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn plan(&self) -> (Option<Record>, Vec<FilePlan>) {
        let record = Record::read(&self.record_file);
        let program = self.program.word();
        let files = self.wish.clients.iter().flat_map(|it| it.files(&program));
        let plans = files
            .map(|file| {
                if self.wish.undo {
                    return plan_undo(&self.checkout, &file, record.as_ref());
                }
                let known = record.as_ref().and_then(|it| it.files.get(file.path));
                plan_init(&self.checkout, &file, known)
            })
            .collect();
        (record, plans)
    }

    /// Asks whoever is there whether to write.
    fn ask(&self, recorded: bool, plans: &[FilePlan]) -> Result<(), CliError> {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if self.context.printer.format() == Format::Json {
            print_json(&self.report(recorded, plans).json(false));
        } else if terminal {
            print("\nWrite this? [y/N] ");
            let mut answer = String::new();
            std::io::stdin().lock().read_line(&mut answer).ok(); // no answer is none
            if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
                return Ok(());
            }
        }
        let message = if terminal {
            "nothing was written: it was not agreed to"
        } else {
            "nothing was written: nobody is here to agree to it"
        };
        let remedy = "Add --yes to write without being asked.".to_owned();
        Err(refused(message.to_owned(), remedy))
    }

    fn lock(&self) -> Result<Locked, CliError> {
        lock_within(&self.lock_file, LOCK_WAIT)
            .map_err(|error| CliError::from(EnsureError::from(error)))
    }

    /// Does what was planned, remembering each file before it is written: a record of something that
    /// is not there does no harm, and the other way round it would stay for ever.
    fn write(&self, mut record: Record, plans: &mut [FilePlan]) -> Result<(), CliError> {
        for plan in plans {
            let path = plan.file.path.to_owned();
            let before = record.files.get(&path).cloned();
            let set = |record: &mut Record, file| match file {
                Some(file) => drop(record.files.insert(path.clone(), file)),
                None => drop(record.files.remove(&path)),
            };
            let done = match (&plan.change, &plan.place) {
                (Change::Write(text), Some(place)) => {
                    if plan.record.is_some() {
                        set(&mut record, plan.record.clone());
                        self.remember(&record)?;
                    }
                    place.write(text)
                }
                (Change::Remove(folders), Some(place)) => {
                    place.remove(&self.checkout.root, folders)
                }
                _ if matches!(plan.change, Change::Refused(_)) => continue,
                _ => Ok(()),
            };
            match done {
                Ok(()) => set(&mut record, plan.record.clone()),
                Err(refusal) => {
                    set(&mut record, before);
                    plan.change = Change::Refused(refusal);
                }
            }
            self.remember(&record)?;
        }
        Ok(())
    }

    fn remember(&self, record: &Record) -> Result<(), CliError> {
        record.write(&self.record_file).map_err(|error| {
            let message = format!("what init wrote cannot be remembered: {error}");
            let remedy = "Make the data folder writable, and run the command again.".to_owned();
            CliError::new(Exit::Failed, Code::Unavailable, message, remedy)
        })
    }

    fn report<'a>(&'a self, recorded: bool, plans: &'a [FilePlan]) -> Report<'a> {
        Report {
            printer: self.context.printer,
            checkout: &self.checkout,
            program: &self.program,
            undo: self.wish.undo,
            recorded,
            plans,
        }
    }
}

/// Says whether something is remembered of a file in which nothing is left of it.
fn is_to_forget(record: Option<&Record>, plan: &FilePlan) -> bool {
    plan.record.is_none() && record.is_some_and(|it| it.files.contains_key(plan.file.path))
}

fn refused(message: String, remedy: String) -> CliError {
    CliError::new(Exit::Refused, Code::Refused, message, remedy)
}
