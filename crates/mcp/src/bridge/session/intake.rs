//! What becomes of a line from the client.

use bytes::Bytes;

use super::attachment::Attachment;
use super::entry::{Entry, Phase, Request, RequestKind, Role, Route};
use super::handshake::Handshake;
use super::{Effect, LISTENS_MAX, Session};
use crate::bridge::answer::{self, UNAVAILABLE};
use crate::bridge::clock::Now;
use crate::bridge::frame::{self, INVALID_REQUEST, Kind, Scan};
use crate::bridge::headers::STATELESS_SINCE;
use crate::bridge::lines::Line;

impl Session {
    pub(super) fn handle_line(&mut self, now: Now, line: Line) {
        match line {
            Line::End => self.drain(now),
            Line::Oversized { id } => self.write(answer::error_line(
                id.as_deref(),
                INVALID_REQUEST,
                "the line is longer than 16 MiB; send less in one message",
            )),
            Line::Frame(bytes) => match frame::scan(&bytes) {
                Err(fault) => self.write(answer::error_line(None, fault.code, fault.reason)),
                Ok(scan) => self.handle_message(now, &bytes, scan),
            },
        }
    }

    fn handle_message(&mut self, now: Now, bytes: &Bytes, scan: Scan<'_>) {
        match scan.kind {
            Kind::Request { id, method, target } => {
                let id = bytes.slice_ref(id.as_bytes());
                let asked = Asked {
                    id,
                    method,
                    target,
                    version: scan.version,
                };
                self.handle_request(now, bytes, asked);
            }
            Kind::Notification { method, cancels } => {
                let cancels = cancels.filter(|_| method == "notifications/cancelled");
                let cancelled = cancels.and_then(|id| self.cancel(id.as_bytes()));
                let route = match cancelled {
                    Some(Cancelled::Unsent) => return,
                    Some(Cancelled::Sent(route)) => Some(one_way(route, &method)),
                    None => self.route_one_way(&method, scan.version),
                };
                self.handle_notification(now, bytes, &method, route);
            }
            Kind::Response => {
                if self.handshake.is_begun() {
                    let route = Route::Session { version: None };
                    self.enqueue(now, bytes.clone(), Role::OneWay(route));
                }
            }
        }
    }

    fn handle_request(&mut self, now: Now, bytes: &Bytes, asked: Asked) {
        let (route, kind) = match self.admit(&asked) {
            Ok(admitted) => admitted,
            Err(answer) => return self.write(answer),
        };
        if let Attachment::Refused { sentence } = &self.attachment {
            let sentence = sentence.clone();
            return self.write(answer::error_line(Some(&asked.id), UNAVAILABLE, &sentence));
        }
        match &route {
            Route::Handshake => self.handshake = Handshake::Asked,
            Route::Stateless { version, .. } => self.stateless_version = Some(version.clone()),
            Route::Session { .. } => {}
        }
        let Asked { id, target, .. } = asked;
        let request = Request {
            id,
            route,
            kind,
            target,
            n: None,
            touched: false,
            silent: false,
        };
        self.enqueue(now, bytes.clone(), Role::Request(request));
    }

    /// Decides how a request goes to the node, or what it is answered right here.
    fn admit(&self, asked: &Asked) -> Result<(Route, RequestKind), Bytes> {
        let refuse = |code, message| Err(answer::error_line(Some(&asked.id), code, message));
        let (method, target) = (asked.method.as_str(), asked.target.as_deref());
        let begun = self.handshake.is_begun();
        match &asked.version {
            _ if method == "initialize" && begun => refuse(INVALID_REQUEST, "already initialized"),
            _ if method == "initialize" => Ok((Route::Handshake, RequestKind::Initialize)),
            Some(version) if version.as_str() >= STATELESS_SINCE => {
                let kind = stateless_kind(method, target);
                if matches!(kind, RequestKind::Listen { .. }) && self.listens() >= LISTENS_MAX {
                    return refuse(UNAVAILABLE, "too many subscriptions are open");
                }
                let (version, method) = (version.clone(), method.to_owned());
                Ok((Route::Stateless { version, method }, kind))
            }
            _ if !begun && method == "ping" => Err(answer::pong_line(&asked.id)),
            _ if !begun => refuse(INVALID_REQUEST, "send initialize first"),
            version => Ok((
                Route::Session {
                    version: version.clone(),
                },
                session_kind(method, target),
            )),
        }
    }

    fn handle_notification(&mut self, now: Now, bytes: &Bytes, method: &str, route: Option<Route>) {
        let role = match route {
            // Neither generation has begun: no node could do anything with it.
            None => return,
            Some(Route::Session { .. })
                if method == "notifications/initialized" && !self.handshake.is_confirmed() =>
            {
                Role::Initialized
            }
            Some(route) => Role::OneWay(route),
        };
        self.enqueue(now, bytes.clone(), role);
    }

    /// Returns how a notification travels: as it says itself, else as the client's requests do.
    fn route_one_way(&self, method: &str, version: Option<String>) -> Option<Route> {
        let stateless = |version| Route::Stateless {
            version,
            method: method.to_owned(),
        };
        match version {
            Some(version) if version.as_str() >= STATELESS_SINCE => Some(stateless(version)),
            version if self.handshake.is_begun() => Some(Route::Session { version }),
            _ => self.stateless_version.clone().map(stateless),
        }
    }

    /// Drops the request with this raw id: its exchange is broken off, and it is not answered.
    fn cancel(&mut self, id: &[u8]) -> Option<Cancelled> {
        let (&key, _) = self.queue.iter().find(|(_, entry)| {
            // The specification forbids the cancellation of an initialize.
            entry.request().is_some_and(|request| {
                request.id == id && !request.silent && request.kind != RequestKind::Initialize
            })
        })?;
        let entry = self.remove(key)?;
        if let Phase::Sent { attempt, .. } = entry.phase {
            self.effects.push(Effect::Abort(attempt));
        }
        let seen = entry.is_sent() || entry.request().is_some_and(|request| request.touched);
        let Role::Request(request) = entry.role else {
            return None;
        };
        self.settle_number(&request, seen);
        Some(if seen {
            Cancelled::Sent(request.route)
        } else {
            Cancelled::Unsent
        })
    }

    /// Adds a message to the queue.
    pub(super) fn enqueue(&mut self, now: Now, frame: Bytes, role: Role) {
        let no_node_since = (!self.is_attached()).then_some(now);
        self.queue_bytes += frame.len();
        self.queue
            .insert(self.next_entry, Entry::new(frame, role, no_node_since));
        self.next_entry += 1;
    }

    fn listens(&self) -> usize {
        self.queue
            .values()
            .filter(|entry| entry.is_listen())
            .count()
    }
}

/// What is read of a request.
struct Asked {
    id: Bytes,
    method: String,
    target: Option<String>,
    version: Option<String>,
}

/// What was known of a request that its client has cancelled.
enum Cancelled {
    /// No node has seen it: there is nobody to tell.
    Unsent,
    /// The node is told, by the way that the request went.
    Sent(Route),
}

/// Returns the route of a notification that belongs to a request with this route.
fn one_way(route: Route, method: &str) -> Route {
    match route {
        Route::Stateless { version, .. } => Route::Stateless {
            version,
            method: method.to_owned(),
        },
        Route::Handshake | Route::Session { .. } => route,
    }
}

fn stateless_kind(method: &str, target: Option<&str>) -> RequestKind {
    match method {
        "subscriptions/listen" => RequestKind::Listen {
            acknowledged: false,
        },
        _ => tool_kind(method, target),
    }
}

fn session_kind(method: &str, target: Option<&str>) -> RequestKind {
    match method {
        "resources/subscribe" => RequestKind::Subscribe,
        "resources/unsubscribe" => RequestKind::Unsubscribe,
        _ => tool_kind(method, target),
    }
}

fn tool_kind(method: &str, target: Option<&str>) -> RequestKind {
    match (method, target) {
        ("tools/call", Some("peers_announce")) => RequestKind::Announce,
        ("tools/call", Some("peers_withdraw")) => RequestKind::Withdraw,
        _ => RequestKind::Plain,
    }
}
