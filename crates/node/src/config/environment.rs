//! The environment of this process, read once.

use std::{ffi::OsString, path::PathBuf};

/// The variables that earshot reads. A blank value counts as unset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `EARSHOT_HOME`: moves configuration, data and state.
    pub home: Option<PathBuf>,
    /// `EARSHOT_ROOT`: the root to work in.
    pub root: Option<PathBuf>,
    /// `CLAUDE_PROJECT_DIR`: the same, from Claude Code.
    pub claude_project_dir: Option<PathBuf>,
    /// `EARSHOT=off`: no node, every command works alone.
    pub off: bool,
    /// `EARSHOT_HTTP_HOST`: the address to bind.
    pub http_host: Option<String>,
    /// `EARSHOT_SESSION_ID`, else the provider's own `CLAUDE_CODE_SESSION_ID`.
    pub session: Option<String>,
    /// `EARSHOT_PARENT_SESSION_ID`.
    pub parent_session: Option<String>,
    /// `CLAUDE_CODE_MESSAGING_SOCKET`: where other sessions reach this one.
    pub message_socket: Option<String>,
    /// `EARSHOT_LOG`: the filter of the log.
    pub log: Option<String>,
    /// `PATH`: where a shell looks for programs.
    pub search_path: Option<OsString>,
    /// `HOME`.
    pub user_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, when absolute as its specification asks.
    pub xdg_config: Option<PathBuf>,
    /// `XDG_DATA_HOME`.
    pub xdg_data: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub xdg_state: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime: Option<PathBuf>,
    /// Whether colours are refused: `NO_COLOR` is set, `CLICOLOR` is 0, or `TERM` is `dumb`.
    pub no_color: bool,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn capture() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// Reads variables through the given look-up.
    pub(crate) fn read(look_up: impl Fn(&str) -> Option<OsString>) -> Self {
        let raw = |name: &str| look_up(name).filter(|value| !value.is_empty());
        let text = |name: &str| {
            raw(name)
                .and_then(|value| value.into_string().ok())
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let path = |name: &str| raw(name).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        Self {
            home: path("EARSHOT_HOME"),
            root: path("EARSHOT_ROOT"),
            claude_project_dir: path("CLAUDE_PROJECT_DIR"),
            off: text("EARSHOT").is_some_and(|value| value.eq_ignore_ascii_case("off")),
            http_host: text("EARSHOT_HTTP_HOST"),
            session: text("EARSHOT_SESSION_ID").or_else(|| text("CLAUDE_CODE_SESSION_ID")),
            parent_session: text("EARSHOT_PARENT_SESSION_ID"),
            message_socket: text("CLAUDE_CODE_MESSAGING_SOCKET"),
            log: text("EARSHOT_LOG"),
            search_path: raw("PATH"),
            user_home: absolute("HOME"),
            xdg_config: absolute("XDG_CONFIG_HOME"),
            xdg_data: absolute("XDG_DATA_HOME"),
            xdg_state: absolute("XDG_STATE_HOME"),
            xdg_runtime: absolute("XDG_RUNTIME_DIR"),
            no_color: raw("NO_COLOR").is_some()
                || raw("CLICOLOR").is_some_and(|value| value == "0")
                || raw("TERM").is_some_and(|value| value == "dumb"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Environment {
        Environment::read(|name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn blank_values_are_unset() {
        let environment = read(&[("EARSHOT_HTTP_HOST", "  "), ("EARSHOT_HOME", "")]);
        assert_eq!(environment.http_host, None);
        assert_eq!(environment.home, None);
    }

    #[test]
    fn the_own_session_variable_wins_over_the_providers() {
        let claude = ("CLAUDE_CODE_SESSION_ID", "c");
        assert_eq!(read(&[claude]).session.as_deref(), Some("c"));
        assert_eq!(
            read(&[claude, ("EARSHOT_SESSION_ID", "e")])
                .session
                .as_deref(),
            Some("e")
        );
    }

    #[test]
    fn off_in_any_case() {
        assert!(read(&[("EARSHOT", "OFF")]).off);
        assert!(!read(&[("EARSHOT", "on")]).off);
    }

    #[test]
    fn colours_are_refused_in_each_of_the_common_ways() {
        for (name, value, refused) in [
            ("NO_COLOR", "1", true),
            ("NO_COLOR", "", false),
            ("CLICOLOR", "0", true),
            ("CLICOLOR", "1", false),
            ("TERM", "dumb", true),
            ("TERM", "xterm", false),
        ] {
            assert_eq!(read(&[(name, value)]).no_color, refused, "{name}={value}");
        }
    }

    #[test]
    fn relative_xdg_folders_are_ignored() {
        assert_eq!(read(&[("XDG_STATE_HOME", "state")]).xdg_state, None);
    }
}
