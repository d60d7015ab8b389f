//! The clients that init connects: their files, and what belongs into them.

use serde_json::{Value, json};

use super::{
    document::Language,
    part::{Kind, Part, SERVER, hook_line},
};

/// How long a client may wait for the hook, in seconds: it answers within two, or not at all.
const HOOK_SECONDS: u32 = 5;

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

/// One file of a client, in a checkout.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientFile {
    /// Whose it is.
    pub(super) client: Client,
    /// Where it is, relative to the root of the checkout.
    pub(super) path: &'static str,
    /// What it is written in.
    pub(super) language: Language,
    /// What belongs into it.
    pub(super) parts: Vec<Part>,
}

impl Client {
    /// All of them, in the order in which they are shown.
    pub(super) const ALL: [Self; 3] = [Self::ClaudeCode, Self::Codex, Self::Gemini];

    /// Returns the word for it on the command line.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// Returns what a person must still do before it starts what a checkout names.
    pub(super) const fn consent(self) -> &'static str {
        match self {
            Self::ClaudeCode => "asks at its next start whether to use the server",
            Self::Codex => {
                "reads the file once the checkout is a trusted project, and runs the hook once /hooks \
                 has trusted it"
            }
            Self::Gemini => "reads the file in a trusted folder, and warns of the hook once",
        }
    }

    /// Lists its files, with what belongs into them so that it starts this program.
    pub(super) fn files(self, program: &str) -> Vec<ClientFile> {
        let file = |path, language, parts| ClientFile {
            client: self,
            path,
            language,
            parts,
        };
        match self {
            Self::ClaudeCode => vec![
                file(
                    ".mcp.json",
                    Language::Json,
                    vec![server(
                        "mcpServers",
                        &json!({"type": "stdio", "command": program, "args": ["mcp"]}),
                    )],
                ),
                file(
                    ".claude/settings.json",
                    Language::Json,
                    vec![hook(&json!({
                        "type": "command", "command": hook_line(program), "timeout": HOOK_SECONDS,
                    }))],
                ),
            ],
            Self::Codex => vec![file(
                ".codex/config.toml",
                Language::Toml,
                vec![
                    server(
                        "mcp_servers",
                        &json!({"command": program, "args": ["mcp"], "env_vars": LET_THROUGH}),
                    ),
                    hook(&json!({
                        "type": "command", "command": hook_line(program), "timeout": HOOK_SECONDS,
                    })),
                ],
            )],
            Self::Gemini => vec![file(
                ".gemini/settings.json",
                Language::Json,
                vec![
                    server("mcpServers", &json!({"command": program, "args": ["mcp"]})),
                    hook(&json!({
                        "name": SERVER, "type": "command", "command": hook_line(program),
                        "timeout": HOOK_SECONDS * 1_000,
                    })),
                ],
            )],
        }
    }
}

/// The variables that Codex is told to pass on: it starts its servers with little more than HOME,
/// PATH and TERM, and these say which node is meant, who is calling, and how far it may reach.
const LET_THROUGH: [&str; 10] = [
    "EARSHOT",
    "EARSHOT_HOME",
    "EARSHOT_MESH",
    "EARSHOT_MESH_INTERFACES",
    "EARSHOT_PARENT_SESSION_ID",
    "EARSHOT_SESSION_ID",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

fn server(holder: &str, value: &Value) -> Part {
    Part {
        at: vec![holder.to_owned(), SERVER.to_owned()],
        kind: Kind::Server,
        value: value.clone(),
    }
}

fn hook(hook: &Value) -> Part {
    Part {
        at: vec!["hooks".to_owned(), "SessionStart".to_owned()],
        kind: Kind::Hook,
        value: json!({ "hooks": [hook] }),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{document, grown::Grown},
        *,
    };

    #[test]
    fn the_files_in_deploy_are_what_init_writes() {
        let shown = [
            (
                ".mcp.json",
                include_str!("../../../../../deploy/clients/claude-code/.mcp.json"),
            ),
            (
                ".claude/settings.json",
                include_str!("../../../../../deploy/clients/claude-code/.claude/settings.json"),
            ),
            (
                ".codex/config.toml",
                include_str!("../../../../../deploy/clients/codex/.codex/config.toml"),
            ),
            (
                ".gemini/settings.json",
                include_str!("../../../../../deploy/clients/gemini/.gemini/settings.json"),
            ),
        ];
        let files = Client::ALL.into_iter().flat_map(|it| it.files("earshot"));
        let written: Vec<(&str, String)> = files
            .map(|file| {
                let mut text = Grown::new(String::new());
                for part in &file.parts {
                    document::put(file.language, &mut text, part).unwrap();
                }
                (file.path, text.text().to_owned())
            })
            .collect();
        assert_eq!(written.len(), shown.len());
        for ((path, text), (shown_path, shown)) in written.iter().zip(shown) {
            assert_eq!((*path, text.as_str()), (shown_path, shown));
        }
    }
}
