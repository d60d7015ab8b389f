//! Nothing that the gates started may outlive them.

use std::{path::Path, thread, time::Duration};

use anyhow::Result;

use crate::{bench::Bench, command, tally::Tally};

/// How often the list of processes is read before what is left counts as left behind.
const LOOKS_MAX: u32 = 50;

/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Fails when a process whose `EARSHOT_HOME` lies in the scratch folder still runs, and ends it.
pub(crate) fn gate(bench: &Bench) -> Result<Tally> {
    let processes = Path::new("/proc");
    if !processes.join("self/environ").is_file() {
        println!("SKIPPED leftovers: this system does not show the environment of processes");
        return Ok(Tally::skipped());
    }
    let mut left = running_below(processes, bench.scratch())?;
    for _ in 0..LOOKS_MAX {
        if left.is_empty() {
            break;
        }
        thread::park_timeout(BETWEEN_LOOKS);
        left = running_below(processes, bench.scratch())?;
    }
    for (pid, name) in &left {
        println!("left behind: {name} (pid {pid})");
        command::signal(*pid, "-KILL");
    }
    Ok(Tally::one(left.is_empty()))
}

fn running_below(processes: &Path, scratch: &Path) -> Result<Vec<(u32, String)>> {
    let wanted = format!("EARSHOT_HOME={}", scratch.display());
    let mut found = Vec::new();
    for entry in fs_err::read_dir(processes)? {
        let folder = entry?.path();
        let pid = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        // A process that ended since the folder was listed, or belongs to somebody else, is skipped.
        let (Some(pid), Ok(environment)) = (pid, fs_err::read(folder.join("environ"))) else {
            continue;
        };
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| entry.starts_with(wanted.as_bytes()))
        {
            let words = fs_err::read(folder.join("cmdline")).unwrap_or_default();
            found.push((
                pid,
                String::from_utf8_lossy(&words)
                    .replace('\0', " ")
                    .trim()
                    .to_owned(),
            ));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_a_home_in_the_scratch_folder_are_found() {
        let processes = tempfile::tempdir().unwrap();
        for (pid, environment) in [
            ("7", "A=1\0EARSHOT_HOME=/s/home\0"),
            ("8", "EARSHOT_HOME=/elsewhere\0"),
            ("9", "X_EARSHOT_HOME=/s/home\0"),
            ("self", "EARSHOT_HOME=/s/home\0"),
        ] {
            let folder = processes.path().join(pid);
            fs_err::create_dir(&folder).unwrap();
            fs_err::write(folder.join("environ"), environment).unwrap();
            fs_err::write(folder.join("cmdline"), "earshot\0serve\0").unwrap();
        }
        let found = running_below(processes.path(), Path::new("/s")).unwrap();
        assert_eq!(found, [(7, "earshot serve".to_owned())]);
    }
}
