//! What init puts into a file: the entry of the server, and a session-start hook.

use serde_json::{Value, json};

use crate::words::shell_quoted;

/// The name under which clients know the server.
pub(super) const SERVER: &str = "earshot";

/// What the hook's command has behind the executable.
const HOOK_WORDS: &str = " context --hook";

/// One step on the way to a value in a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The member of this name.
    Key(String),
    /// The element at this place.
    At(usize),
}

/// The way to a value from the root of a document.
pub(super) type Way = Vec<Step>;

/// One thing that init puts into a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    /// The names of the objects down to it; for a hook, of the array that it is in.
    pub(super) at: Vec<String>,
    /// What kind of thing it is.
    pub(super) kind: Kind,
    /// The value that belongs there.
    pub(super) value: Value,
}

/// What kind of thing a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server, a member of its object.
    Server,
    /// A group with one hook, an element of its array.
    Hook,
}

/// What is found in the place of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The part itself, or a hook of the same command.
    Same(Way),
    /// The part with another executable.
    Other {
        /// The way to it.
        way: Way,
        /// The way to the text in it that names the executable.
        command: Way,
    },
    /// An entry that leads to earshot and that somebody wrote differently.
    Kept(Way),
    /// An entry under the same name that leads elsewhere.
    Foreign(Way),
    /// A value on the way that is not of the kind that clients expect.
    Misfit {
        /// The way to it.
        way: Way,
        /// What it should be.
        expected: &'static str,
    },
}

impl Part {
    /// Returns the text that names the executable: a word, or a line for a shell.
    pub(super) fn command(&self) -> &str {
        let command = match self.kind {
            Kind::Server => self.value.pointer("/command"),
            Kind::Hook => self.value.pointer("/hooks/0/command"),
        };
        command.and_then(Value::as_str).unwrap_or_default()
    }

    /// Writes the way for a person: `mcpServers.earshot`.
    pub(super) fn name(&self) -> String {
        self.at.join(".")
    }

    /// Looks for the part in a document.
    pub(super) fn find(&self, document: &Value) -> Found {
        match self.kind {
            Kind::Server => self.find_server(document),
            Kind::Hook => self.find_hook(document),
        }
    }

    /// Goes down to the place of this part; says what is there instead where there is no such place.
    fn value_at<'v>(&self, document: &'v Value, way: &[Step]) -> Result<&'v Value, Found> {
        let mut found = document;
        for (depth, name) in self.at.iter().enumerate() {
            let Value::Object(members) = found else {
                return Err(Found::Misfit {
                    way: way[..depth].to_vec(),
                    expected: "an object",
                });
            };
            found = members.get(name).ok_or(Found::Nothing)?;
        }
        Ok(found)
    }

    fn find_server(&self, document: &Value) -> Found {
        let way: Way = self.at.iter().cloned().map(Step::Key).collect();
        let found = match self.value_at(document, &way) {
            Ok(found) => found,
            Err(found) => return found,
        };
        if *found == self.value {
            return Found::Same(way);
        }
        let program = found.pointer("/command").and_then(Value::as_str);
        if program.is_none_or(|program| !is_earshot(program)) {
            return Found::Foreign(way);
        }
        let mut like_it = found.clone();
        like_it["command"] = json!(self.command());
        if like_it == self.value {
            let command = [way.as_slice(), &[Step::Key("command".to_owned())]].concat();
            return Found::Other { way, command };
        }
        match found.pointer("/args/0").and_then(Value::as_str) {
            Some("mcp") => Found::Kept(way),
            Some(_) | None => Found::Foreign(way),
        }
    }

    fn find_hook(&self, document: &Value) -> Found {
        let way: Way = self.at.iter().cloned().map(Step::Key).collect();
        let found = match self.value_at(document, &way) {
            Ok(found) => found,
            Err(found) => return found,
        };
        let Value::Array(groups) = found else {
            return Found::Misfit {
                way,
                expected: "an array",
            };
        };
        let own = groups.iter().enumerate().find_map(|(at, group)| {
            let hooks = group.get("hooks")?.as_array()?;
            let (inner, line) = hooks.iter().enumerate().find_map(|(inner, hook)| {
                let line = hook.get("command")?.as_str()?;
                is_hook_line(line).then_some((inner, line))
            })?;
            Some((at, inner, hooks.len(), line))
        });
        let Some((at, inner, hooks, line)) = own else {
            return Found::Nothing;
        };
        let mut way = way;
        way.push(Step::At(at));
        let command = [
            way.as_slice(),
            &[
                Step::Key("hooks".to_owned()),
                Step::At(inner),
                Step::Key("command".to_owned()),
            ],
        ]
        .concat();
        if hooks > 1 {
            // Others' hooks stand beside it in the group: the group is theirs.
            way = command[..command.len() - 1].to_vec();
        }
        if line == self.command() {
            Found::Same(way)
        } else {
            Found::Other { way, command }
        }
    }

    /// Says whether a value is what init writes here, whatever executable it names.
    pub(super) fn is_own(&self, value: &Value) -> bool {
        let hook = self.value.pointer("/hooks/0");
        [Some(&self.value), hook]
            .into_iter()
            .flatten()
            .any(|own| with_command(value, self.command()).as_ref() == Some(own))
    }
}

/// Returns a value of ours with another command in it; `None` where it has none of ours.
fn with_command(value: &Value, command: &str) -> Option<Value> {
    let mut like_it = value.clone();
    let place = if like_it.get("hooks").is_some() {
        like_it.pointer_mut("/hooks/0/command")?
    } else {
        like_it.get_mut("command")?
    };
    let named = place.as_str()?;
    if !is_earshot(named) && !is_hook_line(named) {
        return None;
    }
    *place = json!(command);
    Some(like_it)
}

/// Writes the line with which a client's shell runs the hook.
pub(super) fn hook_line(program: &str) -> String {
    format!("{}{HOOK_WORDS}", shell_quoted(program))
}

/// Says whether a line is one that init writes, for whatever executable.
fn is_hook_line(line: &str) -> bool {
    line.strip_suffix(HOOK_WORDS)
        .is_some_and(|program| is_earshot(&unquoted(program)))
}

/// Reads back a word that was quoted for a shell.
fn unquoted(word: &str) -> String {
    match word
        .strip_prefix('\'')
        .and_then(|word| word.strip_suffix('\''))
    {
        Some(quoted) => quoted.replace(r"'\''", "'"),
        None => word.to_owned(),
    }
}

/// Says whether a word names an earshot: of any path, and also with a release behind its name.
fn is_earshot(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name == SERVER
        || name
            .strip_prefix(SERVER)
            .is_some_and(|rest| rest.starts_with(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Part {
        Part {
            at: vec!["mcpServers".to_owned(), SERVER.to_owned()],
            kind: Kind::Server,
            value: json!({"command": "earshot", "args": ["mcp"]}),
        }
    }

    fn hook() -> Part {
        Part {
            at: vec!["hooks".to_owned(), "SessionStart".to_owned()],
            kind: Kind::Hook,
            value: json!({"hooks": [{"type": "command", "command": "earshot context --hook"}]}),
        }
    }

    fn way(steps: &[&str]) -> Way {
        let step = |step: &&str| {
            step.parse()
                .map_or_else(|_| Step::Key((*step).to_owned()), Step::At)
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn an_entry_is_told_by_what_it_starts() {
        let at = || way(&["mcpServers", "earshot"]);
        for (entry, expected) in [
            (
                json!({"command": "earshot", "args": ["mcp"]}),
                Found::Same(at()),
            ),
            (
                json!({"args": ["mcp"], "command": "earshot"}),
                Found::Same(at()),
            ),
            (
                json!({"command": "/old/earshot", "args": ["mcp"]}),
                Found::Other {
                    way: at(),
                    command: way(&["mcpServers", "earshot", "command"]),
                },
            ),
            (
                json!({"command": "earshot-0.2", "args": ["mcp"], "env": {"A": "b"}}),
                Found::Kept(at()),
            ),
            (
                json!({"command": "earshot", "args": ["serve"]}),
                Found::Foreign(at()),
            ),
            (
                json!({"command": "npx", "args": ["mcp"]}),
                Found::Foreign(at()),
            ),
            (
                json!({"url": "http://127.0.0.1:1/mcp"}),
                Found::Foreign(at()),
            ),
            (json!(null), Found::Foreign(at())),
        ] {
            let document = json!({"mcpServers": {"earshot": entry}});
            assert_eq!(server().find(&document), expected, "{document}");
        }
        assert_eq!(server().find(&json!({})), Found::Nothing);
        for (document, misfit) in [
            (json!([]), way(&[])),
            (json!({"mcpServers": []}), way(&["mcpServers"])),
            (json!({"mcpServers": null}), way(&["mcpServers"])),
        ] {
            let expected = Found::Misfit {
                way: misfit,
                expected: "an object",
            };
            assert_eq!(server().find(&document), expected, "{document}");
        }
    }

    #[test]
    fn a_hook_is_told_by_its_command() {
        let group = json!({"hooks": [{"type": "command", "command": "make"}]});
        let own = |command: &str| json!({"type": "command", "command": command});
        let find = |groups: Value| hook().find(&json!({"hooks": {"SessionStart": groups}}));
        assert_eq!(find(json!([])), Found::Nothing);
        assert_eq!(find(json!([group, 1, {"hooks": 2}])), Found::Nothing);
        assert_eq!(
            find(json!([group, {"hooks": [own("earshot context --hook")]}])),
            Found::Same(way(&["hooks", "SessionStart", "1"]))
        );
        for old in [
            "/old/earshot context --hook",
            r"'/it'\''s old/earshot-0.1' context --hook",
        ] {
            assert_eq!(
                find(json!([{"hooks": [own("make"), own(old)]}])),
                Found::Other {
                    way: way(&["hooks", "SessionStart", "0", "hooks", "1"]),
                    command: way(&["hooks", "SessionStart", "0", "hooks", "1", "command"]),
                }
            );
        }
        for other in [
            "earshot context",
            "earshots context --hook",
            "sh -c 'earshot context --hook'",
        ] {
            assert_eq!(
                find(json!([{"hooks": [own(other)]}])),
                Found::Nothing,
                "{other}"
            );
        }
        let misfit = find(json!({}));
        let expected = "an array";
        let at = way(&["hooks", "SessionStart"]);
        assert_eq!(misfit, Found::Misfit { way: at, expected });
    }

    #[test]
    fn what_init_writes_is_known_again_whatever_executable_it_names() {
        let other = json!({"command": "/a b/earshot", "args": ["mcp"]});
        assert!(server().is_own(&other));
        assert!(!server().is_own(&json!({"command": "earshot", "args": ["mcp", "-v"]})));
        assert!(!server().is_own(&json!({"command": "npx", "args": ["mcp"]})));
        let inner = json!({"type": "command", "command": hook_line("/a b/earshot")});
        assert!(hook().is_own(&inner));
        assert!(hook().is_own(&json!({ "hooks": [inner] })));
        assert!(!hook().is_own(&json!({ "hooks": [inner], "matcher": "x" })));
    }
}
