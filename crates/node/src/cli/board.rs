//! The board, and what happens on it, as a person reads it.

use std::time::Duration;

use earshot_proto::Timestamp;
use serde_json::{Map, Value};

use super::{
    printer::{Printer, Tone},
    render::table,
    shown::shown,
};
use crate::words::{age, unix_ms};

/// Writes the board: who, where, on what, and what collides.
pub(super) fn board(printer: Printer, answer: &Map<String, Value>, now: Timestamp) -> String {
    let peers = list(answer.get("peers"));
    let mut text = if peers.is_empty() {
        "Nobody is on the board yet.\n".to_owned()
    } else {
        peers_table(printer, answer, peers, now)
    };
    for collision in list(answer.get("collisions")) {
        let id = |side: &str| side_of(peers, collision, side);
        let line = format!("{} and {} collide: {}", id("a"), id("b"), pairs(collision));
        text.push_str(&toned(printer, Tone::Alarm, &line));
    }
    text.push_str(&more_collisions(printer, answer));
    for unread in list(answer.get("unread")) {
        let line = format!(
            "not read: the node of checkout {}: {}",
            short(&text_at(unread, &["node"])),
            text_at(unread, &["reason"]),
        );
        text.push_str(&toned(printer, Tone::Alarm, &line));
    }
    if let Some(more) = answer.get("more").and_then(Value::as_str) {
        let line = format!("more: earshot peers --cursor {}", shown(more));
        text.push_str(&toned(printer, Tone::Faint, &line));
    }
    text.push_str(&notices(answer));
    text
}

/// Names a peer of another checkout by that, too: each board has its own `p1`.
pub(super) fn name_of(peer: &Value) -> String {
    let id = text_at(peer, &["id"]);
    if text_at(peer, &["origin", "kind"]) == "sibling" {
        let checkout = text_at(peer, &["checkout_id"]);
        format!("{id}@{}", short(&checkout))
    } else {
        id
    }
}

/// Names one side of a collision as the table above it does.
pub(super) fn side_of(peers: &[Value], collision: &Value, side: &str) -> String {
    let (id, node) = (
        text_at(collision, &[side, "id"]),
        text_at(collision, &[side, "node"]),
    );
    let shown = peers
        .iter()
        .find(|peer| text_at(peer, &["id"]) == id && text_at(peer, &["origin", "node"]) == node);
    shown.map_or(id, name_of)
}

/// The beginning of a checkout's id, by which a person tells a few of them apart.
fn short(checkout: &str) -> String {
    checkout.chars().take(6).collect()
}

/// Writes what was announced, and whom it meets. `own` is this checkout's id.
pub(super) fn announced(printer: Printer, answer: &Map<String, Value>, own: &str) -> String {
    let me = answer.get("peer").and_then(Value::as_str).unwrap_or("-");
    let mut text = match answer.get("announcement") {
        Some(announcement) => {
            let intent = text_at(announcement, &["intent"]);
            let paths = joined(announcement.get("paths"), ", ");
            let on = if paths.is_empty() { "" } else { " on " };
            format!("{me} announced: \"{intent}\"{on}{paths}\n")
        }
        None => format!("{me} has withdrawn since.\n"),
    };
    let collisions = list(answer.get("collisions"));
    for collision in collisions {
        let gone = match collision.get("attached") {
            Some(Value::Bool(false)) => ", gone",
            Some(_) | None => "",
        };
        let line = format!(
            "{me} and {peer} collide: {} ({peer}{gone}: \"{}\")",
            pairs(collision),
            text_at(collision, &["intent"]),
            peer = name_of_met(collision, own),
        );
        text.push_str(&toned(printer, Tone::Alarm, &line));
    }
    text.push_str(&more_collisions(printer, answer));
    if collisions.is_empty() {
        text.push_str("Nobody's claims meet yours.\n");
    }
    text.push_str(&notices(answer));
    text
}

/// Writes whether something was withdrawn; `board` is what stands on it, where a node runs.
pub(super) fn withdrawn(
    printer: Printer,
    answer: &Map<String, Value>,
    board: Option<&Map<String, Value>>,
) -> String {
    let taken_back = answer.get("withdrawn").and_then(Value::as_bool);
    if taken_back == Some(true) {
        return format!("Withdrawn.\n{}", notices(answer));
    }
    let Some(board) = board else {
        return "No node runs here: there was nothing to withdraw from.\n".to_owned();
    };
    let mut text = "Nothing of yours is announced.\n".to_owned();
    let of_other_shells = list(board.get("peers")).iter().any(|peer| {
        peer.get("announcement").is_some()
            && peer.get("transport").and_then(Value::as_str) == Some("cli")
            && peer.get("id") != board.get("me")
    });
    if of_other_shells {
        let hint = "hint: What another shell announced is that shell's; shells with the same \
                    EARSHOT_SESSION_ID are one.";
        text.push_str(&toned(printer, Tone::Faint, hint));
    }
    text.push_str(&notices(answer));
    text
}

/// Names a peer that an announcement meets.
fn name_of_met(collision: &Value, own: &str) -> String {
    let id = text_at(collision, &["peer", "id"]);
    let checkout = text_at(collision, &["checkout_id"]);
    if checkout == own {
        id
    } else {
        format!("{id}@{}", short(&checkout))
    }
}

fn peers_table(
    printer: Printer,
    answer: &Map<String, Value>,
    peers: &[Value],
    now: Timestamp,
) -> String {
    let me = answer.get("me").and_then(Value::as_str);
    // Addresses are told to those who ask for details only.
    let detail = peers.iter().any(|peer| peer.get("address").is_some());
    let mut headings = vec!["PEER", "CLIENT", "BRANCH", "SEEN"];
    if detail {
        headings.extend(["MACHINE", "PID", "SESSION"]);
    }
    headings.extend(["INTENT", "PATHS"]);
    let rows: Vec<Vec<String>> = peers
        .iter()
        .map(|peer| row(peer, me, detail, now))
        .collect();
    table(printer, &headings, &rows)
}

fn row(peer: &Value, me: Option<&str>, detail: bool, now: Timestamp) -> Vec<String> {
    let id = name_of(peer);
    let mine = if Some(id.as_str()) == me {
        " (you)"
    } else {
        ""
    };
    let mut cells = vec![
        format!("{id}{mine}"),
        text_at(peer, &["client", "name"]),
        text_at(peer, &["branch"]),
        seen(peer, now),
    ];
    if detail {
        let pid = peer.pointer("/address/pid").and_then(Value::as_u64);
        cells.extend([
            text_at(peer, &["address", "machine"]),
            pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            text_at(peer, &["address", "session"]),
        ]);
    }
    cells.extend([
        text_at(peer, &["announcement", "intent"]),
        joined(peer.pointer("/announcement/paths"), " "),
    ]);
    cells
}

/// Says how long ago a peer was heard of, and whether it has departed.
fn seen(peer: &Value, now: Timestamp) -> String {
    let last = text_at(peer, &["last_seen"]);
    let ago = unix_ms(&last).map(|ms| Duration::from_millis(now.unix_ms().saturating_sub(ms)));
    let ago = ago.map_or(last, age);
    match peer.get("attached").and_then(Value::as_bool) {
        Some(true) => ago,
        Some(false) | None => format!("gone, {ago}"),
    }
}

/// Writes the paths that meet, of the one side and of the other.
fn pairs(collision: &Value) -> String {
    let mut paths: Vec<String> = list(collision.get("pairs"))
        .iter()
        .map(|pair| joined(Some(pair), " and "))
        .collect();
    let more = collision.get("pairs_more").and_then(Value::as_u64);
    paths.extend(more.map(|more| format!("and {more} more")));
    paths.join("; ")
}

fn more_collisions(printer: Printer, answer: &Map<String, Value>) -> String {
    match answer.get("collisions_more").and_then(Value::as_u64) {
        Some(more) => toned(printer, Tone::Alarm, &format!("and {more} more collide")),
        None => String::new(),
    }
}

/// Writes what has come up for the caller: nobody tells it again.
fn notices(answer: &Map<String, Value>) -> String {
    list(answer.get("notices"))
        .iter()
        .filter_map(Value::as_str)
        .map(|notice| format!("notice: {}\n", shown(notice)))
        .collect()
}

fn toned(printer: Printer, tone: Tone, line: &str) -> String {
    format!("{}\n", printer.tone(tone, line))
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn joined(words: Option<&Value>, between: &str) -> String {
    let words = list(words).iter().filter_map(Value::as_str).map(shown);
    words.collect::<Vec<_>>().join(between)
}

fn text_at(value: &Value, path: &[&str]) -> String {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    shown(found.and_then(Value::as_str).unwrap_or("-")).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain() -> Printer {
        Printer::plain(None)
    }

    fn fields(answer: &Value) -> &Map<String, Value> {
        answer.as_object().unwrap()
    }

    /// 2026-01-02T03:04:05Z.
    const NOW: Timestamp = Timestamp::from_unix_ms(1_767_323_045_000);

    #[test]
    fn the_board_says_how_long_ago_who_is_gone_and_what_collides() {
        let mut answer = json!({
            "count": 1, "me": "p1",
            "peers": [
                {"id": "p1", "client": {"name": "a"}, "attached": true, "branch": "main",
                 "last_seen": "2026-01-02T03:04:04.678Z",
                 "announcement": {"intent": "cli", "paths": ["src", "docs"]}},
                {"id": "p2", "client": {"name": "b"}, "attached": false,
                 "last_seen": "2026-01-02T02:59:05.000Z"},
            ],
            "collisions": [{
                "a": {"id": "p1"}, "b": {"id": "p2"},
                "pairs": [["src", "src/x"], ["docs", "."]], "pairs_more": 2,
            }],
            "collisions_more": 1593,
            "more": "32",
            "notices": ["p2 claims src/x"],
        });
        assert_eq!(
            board(plain(), fields(&answer), NOW),
            "PEER      CLIENT  BRANCH  SEEN      INTENT  PATHS\n\
             p1 (you)  a       main    now       cli     src docs\n\
             p2        b       -       gone, 5m  -\n\
             p1 and p2 collide: src and src/x; docs and .; and 2 more\n\
             and 1593 more collide\n\
             more: earshot peers --cursor 32\n\
             notice: p2 claims src/x\n"
        );
        answer["peers"][0]["address"] = json!({"machine": "m", "pid": 7, "session": "s"});
        let detailed = board(plain(), fields(&answer), NOW);
        let lines: Vec<&str> = detailed.lines().take(3).collect();
        assert_eq!(
            lines,
            [
                "PEER      CLIENT  BRANCH  SEEN      MACHINE  PID  SESSION  INTENT  PATHS",
                "p1 (you)  a       main    now       m        7    s        cli     src docs",
                "p2        b       -       gone, 5m  -        -    -        -",
            ]
        );
        assert_eq!(
            board(plain(), fields(&json!({ "peers": [] })), NOW),
            "Nobody is on the board yet.\n"
        );
    }

    #[test]
    fn peers_of_other_checkouts_are_told_apart_from_one_s_own() {
        let row = |node: &str, kind: &str, checkout: &str| {
            json!({
                "id": "p1", "client": {"name": "a"}, "attached": true, "checkout_id": checkout,
                "last_seen": "2026-01-02T03:04:04.678Z", "origin": {"kind": kind, "node": node},
            })
        };
        let answer = json!({
            "count": 2, "me": "p1",
            "peers": [row("n1", "here", "c1"), row("n2", "sibling", "0123456789abcdef")],
            "collisions": [{
                "a": {"id": "p1", "node": "n1"}, "b": {"id": "p1", "node": "n2"},
                "pairs": [["src", "src/x"]],
            }],
            "unread": [{"node": "fedcba9876543210", "reason": "no hello within 3s"}],
        });
        assert_eq!(
            board(plain(), fields(&answer), NOW),
            "PEER       CLIENT  BRANCH  SEEN  INTENT  PATHS\n\
             p1 (you)   a       -       now   -\n\
             p1@012345  a       -       now   -\n\
             p1 and p1@012345 collide: src and src/x\n\
             not read: the node of checkout fedcba: no hello within 3s\n"
        );
    }

    #[test]
    fn an_announcement_is_told_with_whom_it_meets() {
        let mut answer = json!({
            "peer": "p3",
            "announcement": {"intent": "fix main", "paths": ["src/main.rs", "docs"]},
            "collisions": [],
        });
        assert_eq!(
            announced(plain(), fields(&answer), "c1"),
            "p3 announced: \"fix main\" on src/main.rs, docs\nNobody's claims meet yours.\n"
        );
        answer["announcement"]["paths"] = json!([]);
        answer["collisions"] = json!([
            {"peer": {"id": "p1"}, "checkout_id": "c1", "attached": true, "intent": "cli",
             "pairs": [["a", "b"]]},
            {"peer": {"id": "p2"}, "checkout_id": "0123456789", "attached": false, "intent": "x",
             "pairs": [["a", "."]]},
        ]);
        answer["collisions_more"] = json!(4);
        assert_eq!(
            announced(plain(), fields(&answer), "c1"),
            "p3 announced: \"fix main\"\n\
             p3 and p1 collide: a and b (p1: \"cli\")\n\
             p3 and p2@012345 collide: a and . (p2@012345, gone: \"x\")\n\
             and 4 more collide\n"
        );
    }

    #[test]
    fn withdrawing_says_what_was_there() {
        let said = |withdrawn: bool, board: Option<Value>| {
            let answer = json!({ "withdrawn": withdrawn });
            let board = board.as_ref().map(fields);
            super::withdrawn(plain(), fields(&answer), board)
        };
        assert_eq!(said(true, None), "Withdrawn.\n");
        assert_eq!(
            said(false, None),
            "No node runs here: there was nothing to withdraw from.\n"
        );
        let peers = |transport: &str| {
            let announcement = json!({"intent": "x", "paths": []});
            json!({
                "me": "p1",
                "peers": [{"id": "p2", "transport": transport, "announcement": announcement}],
            })
        };
        let nothing = "Nothing of yours is announced.\n";
        assert_eq!(said(false, Some(peers("stdio"))), nothing);
        assert_eq!(
            said(false, Some(peers("cli"))),
            format!(
                "{nothing}hint: What another shell announced is that shell's; shells with the same \
                 EARSHOT_SESSION_ID are one.\n"
            )
        );
    }
}
