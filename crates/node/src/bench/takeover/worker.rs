//! One client of a takeover: it announces, reads what it announced twice, and begins again.

use std::time::Duration;

use earshot_proto::Now;
use serde_json::{Value, value::RawValue};

use super::tally::{Answered, Kind, Tally};
use crate::{
    bench::client::{Client, ClientError, structured},
    clock,
};

/// Pause of a plain HTTP client before it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// How long a plain HTTP client tries one call.
const RETRY_TIME_MAX: Duration = Duration::from_secs(10);

/// Pages of a board that are read for the own row: sixteen times as many as clients fill.
const PAGES_MAX: usize = 32;

/// One client and what it saw.
#[derive(Debug)]
pub(super) struct Worker {
    name: String,
    /// Which folder it claims: nobody else's.
    at: usize,
    client: Client,
    tally: Tally,
}

impl Worker {
    pub(super) fn new(kind: Kind, name: String, at: usize, client: Client) -> Self {
        Self {
            name,
            at,
            client,
            tally: Tally::new(kind),
        }
    }

    /// Calls until the time is over, then leaves.
    pub(super) async fn run(mut self, began: Now, time: Duration) -> Tally {
        let mut turn = 0_u64;
        while clock::now().since(began) < time {
            turn += 1;
            self.turn(turn).await;
        }
        self.tally.doubled += self.client.repeated() + self.client.close().await;
        self.tally
    }

    async fn turn(&mut self, turn: u64) {
        let intent = format!("turn {turn}");
        let arguments = format!(
            "{{\"intent\":\"{intent}\",\"paths\":[\"folder{}\"]}}",
            self.at
        );
        if self.call("peers_announce", &arguments).await.is_none() {
            return;
        }
        let Some(first) = self.read_board().await else {
            return;
        };
        let kept = first.intent.as_deref() == Some(&intent);
        self.tally.lost += u64::from(!kept);
        self.tally.doubled += self.shown_twice(&first);
        let Some(second) = self.read_board().await.filter(|_| kept) else {
            return;
        };
        match second.intent {
            Some(shown) if shown == intent => {}
            // Only an older command that took effect again can undo what was read once.
            Some(_) => self.tally.doubled += 1,
            None => self.tally.lost += 1,
        }
    }

    /// A bridge's client is one peer for as long as it lives; over HTTP it is a new one with every
    /// wire session.
    fn shown_twice(&self, board: &OwnRows) -> u64 {
        match self.tally.kind {
            Kind::Bridge => board.attached.saturating_sub(1),
            Kind::Http => 0,
        }
    }

    /// Reads the board until the own row was seen.
    async fn read_board(&mut self) -> Option<OwnRows> {
        let mut rows = OwnRows::default();
        let mut arguments = "{}".to_owned();
        for _ in 0..PAGES_MAX {
            let page = self.call("peers_list", &arguments).await?;
            let page = structured(&page)?;
            match rows.add(&page, &self.name) {
                Some(cursor) => arguments = format!("{{\"cursor\":\"{cursor}\"}}"),
                None => break,
            }
        }
        Some(rows)
    }

    /// Calls a tool; `None` when it was given up, which is counted.
    async fn call(&mut self, tool: &str, arguments: &str) -> Option<Box<RawValue>> {
        let began = clock::now();
        loop {
            let error = match self.client.call(tool, arguments).await {
                Ok(result) => {
                    self.tally.answered.push(Answered {
                        began,
                        ended: clock::now(),
                    });
                    return Some(result);
                }
                Err(error) => error,
            };
            let again = self.tally.kind == Kind::Http
                && clock::now().since(began) < RETRY_TIME_MAX
                && !matches!(error, ClientError::Refused(_));
            if !again {
                self.tally.failed += 1;
                self.tally
                    .first_failure
                    .get_or_insert_with(|| error.to_string());
                // A client that is gone for good must not count failures as fast as it can.
                tokio::time::sleep(RETRY_PAUSE).await;
                return None;
            }
            self.tally.errors_seen += 1;
            self.recover(&error).await;
        }
    }

    /// Does what a plain HTTP client does after an error: waits, and opens a new wire session where
    /// the server no longer knows the old one.
    async fn recover(&mut self, error: &ClientError) {
        match (&mut self.client, error) {
            (Client::Http(client), ClientError::SessionGone) => {
                // The call that follows fails in its turn where this does.
                client.initialize().await.ok();
            }
            (Client::Http(_) | Client::Stdio(_), _) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}

/// What a board shows of one client.
#[derive(Debug, Default, PartialEq, Eq)]
struct OwnRows {
    /// What is announced in the row that the answer calls the caller's own.
    intent: Option<String>,
    /// Attached rows that carry the client's name.
    attached: u64,
}

impl OwnRows {
    /// Adds a page, and returns the cursor of the next.
    fn add(&mut self, page: &Value, name: &str) -> Option<String> {
        let me = page.get("me").and_then(Value::as_str);
        for row in page
            .get("peers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if me.is_some() && row.get("id").and_then(Value::as_str) == me {
                let intent = row.pointer("/announcement/intent").and_then(Value::as_str);
                self.intent = intent.map(str::to_owned);
            }
            let named = row.pointer("/client/name").and_then(Value::as_str) == Some(name);
            let attached = row.get("attached").and_then(Value::as_bool) == Some(true);
            self.attached += u64::from(named && attached);
        }
        page.get("more").and_then(Value::as_str).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_own_row_is_found_on_any_page_and_a_second_one_is_seen() {
        let row = |id: &str, name: &str, attached: bool| {
            json!({
                "id": id, "client": {"name": name}, "attached": attached,
                "announcement": {"intent": format!("of {id}")},
            })
        };
        let mut rows = OwnRows::default();
        let first = json!({"me": "p9", "more": "c", "peers": [
            row("p1", "bench-1", true), row("p2", "bench-9", false),
        ]});
        assert_eq!(rows.add(&first, "bench-9").as_deref(), Some("c"));
        assert_eq!(rows, OwnRows::default());
        let second = json!({"me": "p9", "peers": [
            row("p9", "bench-9", true), row("p10", "bench-9", true),
        ]});
        assert_eq!(rows.add(&second, "bench-9"), None);
        assert_eq!(
            rows,
            OwnRows {
                intent: Some("of p9".to_owned()),
                attached: 2
            }
        );
    }

    #[test]
    fn a_caller_without_a_row_has_announced_nothing() {
        let mut rows = OwnRows::default();
        rows.add(
            &json!({"peers": [{"id": "p1", "announcement": {"intent": "x"}}]}),
            "bench-1",
        );
        assert_eq!(rows.intent, None);
    }
}
