//! Finding a node, losing it, and noticing that.

use bytes::Bytes;
use http::Method;

use super::entry::{Entry, Phase, Role};
use super::handshake::{Handshake, Stage};
use super::replies::MOVED;
use super::{
    Effect, Ending, PROBE_AFTER, PROBE_TIMEOUT, Purpose, RESENDS_MAX, SearchId, Session, backoff,
};
use crate::bridge::clock::Now;
use crate::bridge::exchange::{End, Event};
use crate::bridge::finder::{FindError, Found, Want};
use crate::bridge::headers;

/// Whether there is a node to speak to.
#[derive(Debug)]
pub(super) enum Attachment {
    /// Nothing has asked for one yet.
    Unsought,
    /// A search is under way.
    Seeking { search: SearchId, may_start: bool },
    /// The next search begins at that time.
    Pausing { until: Now, may_start: bool },
    /// There is one.
    Attached,
    /// There will never be one.
    Refused { sentence: String },
}

impl Session {
    pub(super) fn is_attached(&self) -> bool {
        matches!(self.attachment, Attachment::Attached)
    }

    /// Begins a search where the queue needs one that is not under way.
    pub(super) fn seek_if_wanted(&mut self) {
        let may_start = self.may_start();
        match self.attachment {
            Attachment::Unsought if !self.queue.is_empty() => self.seek(),
            // Streams only wait for a node; a request does not wait for their patience.
            Attachment::Seeking {
                may_start: false, ..
            }
            | Attachment::Pausing {
                may_start: false, ..
            } if may_start => {
                self.seek();
            }
            _ => {}
        }
    }

    /// Invariant 6.
    pub(super) fn may_start(&self) -> bool {
        self.queue.values().any(Entry::starts_a_node)
    }

    fn seek(&mut self) {
        let may_start = self.may_start();
        let search = self.find(may_start);
        self.attachment = Attachment::Seeking { search, may_start };
    }

    /// Has the finder search, instead of any search under way.
    pub(super) fn find(&mut self, may_start: bool) -> SearchId {
        let want = Want {
            not_before: self.last_epoch,
            may_start,
        };
        let search = self.next_search;
        self.next_search += 1;
        self.effects.push(Effect::Find(search, want));
        search
    }

    pub(super) fn handle_found(
        &mut self,
        now: Now,
        search: SearchId,
        result: Result<Found, FindError>,
    ) {
        let Attachment::Seeking {
            search: current,
            may_start,
        } = self.attachment
        else {
            return self.handle_look(now, search, result);
        };
        if search != current {
            return;
        }
        match result {
            Ok(found) => self.attach(now, found),
            Err(FindError::Permanent(sentence)) => {
                self.attachment = Attachment::Refused { sentence };
            }
            Err(FindError::Alone(reason)) if self.last_epoch.is_none() => self.leave(reason),
            // A client that was served by a node cannot be served alone: its state is there.
            Err(error @ (FindError::Transient(_) | FindError::Alone(_))) => {
                self.hopeless = matches!(error, FindError::Alone(_));
                let until = now + backoff(self.vain_searches);
                self.vain_searches = self.vain_searches.saturating_add(1);
                self.last_reason = Some(error.to_string());
                self.attachment = Attachment::Pausing { until, may_start };
            }
        }
    }

    pub(super) fn attach(&mut self, now: Now, found: Found) {
        tracing::info!(url = %found.url, epoch = found.epoch, "attached to a node");
        self.may_re_announce = self.last_epoch.is_some();
        self.last_epoch = self.last_epoch.max(Some(found.epoch));
        self.vain_searches = 0;
        self.last_reason = None;
        self.hopeless = false;
        self.heard_at = now;
        self.attachment = Attachment::Attached;
        self.effects.push(Effect::Attach(found));
        self.reopen_push(now);
    }

    /// Hands the client over, with everything that no node has seen.
    fn leave(&mut self, reason: String) {
        let frames = std::mem::take(&mut self.queue)
            .into_values()
            .map(|entry| entry.frame);
        self.effects.push(Effect::Alone {
            reason,
            frames: frames.collect(),
        });
        self.ending = Ending::Ended;
    }

    /// Closes what there is, keeps what is unanswered, and looks for a node.
    pub(super) fn lose_node(&mut self, now: Now) {
        self.let_go(now);
        let look = self.look.take();
        self.losses = self.losses.saturating_add(1);
        if self.losses > 1 {
            let until = now + backoff(self.losses - 2);
            let may_start = self.may_start();
            self.attachment = Attachment::Pausing { until, may_start };
        } else if let Some(search) = look {
            // It is after the same, and has watched the node that is gone now.
            self.attachment = Attachment::Seeking {
                search,
                may_start: true,
            };
        } else {
            self.seek();
        }
    }

    /// Invariants 2 and 4: closes all connections and takes back what was sent over them.
    pub(super) fn let_go(&mut self, now: Now) {
        self.effects.push(Effect::Detach);
        self.attempts.clear();
        self.probe = None;
        self.reopen_push(now);
        if let Handshake::Replaying { attempt, stage, .. } = &mut self.handshake {
            *attempt = None;
            *stage = Stage::Initialize { session: None };
        }
        self.take_back(now);
    }

    /// Has everything that was at the node wait for the next one.
    fn take_back(&mut self, now: Now) {
        let mut given_up = Vec::new();
        for (&key, entry) in &mut self.queue {
            entry.no_node_since.get_or_insert(now);
            if !entry.is_sent() {
                continue;
            }
            entry.phase = Phase::Waiting {
                not_before: Now::ZERO,
            };
            match &mut entry.role {
                Role::Request(request) => {
                    request.touched = true;
                    entry.resends += 1;
                    if entry.resends > RESENDS_MAX && !entry.is_open_stream() {
                        given_up.push(key);
                    }
                }
                Role::Initialized => {}
                // Whether it arrived is unknown, and it cannot be told apart from a second one.
                Role::OneWay(_) => given_up.push(key),
            }
        }
        for key in given_up {
            self.fail_resent(key);
        }
    }

    /// Returns when the attachment wants to be looked at.
    pub(super) fn attachment_wake(&self) -> Option<Now> {
        match self.attachment {
            Attachment::Pausing { until, .. } => Some(until),
            Attachment::Attached => match self.probe {
                Some((_, until)) => Some(until),
                None => self.seat_known.then_some(self.heard_at + PROBE_AFTER),
            },
            Attachment::Unsought | Attachment::Seeking { .. } | Attachment::Refused { .. } => None,
        }
    }

    pub(super) fn wake_attachment(&mut self, now: Now) {
        if self.attachment_wake().is_none_or(|at| at > now) {
            return;
        }
        if !self.is_attached() {
            return self.seek();
        }
        if self.probe.is_some() {
            tracing::info!("the node leaves a probe unanswered");
            return self.lose_node(now);
        }
        let mut headers = self.identity.clone();
        if let Some(wire) = self.handshake.wire() {
            headers::add_session(
                &mut headers,
                wire.session.as_deref(),
                wire.version.as_deref(),
            );
        }
        let attempt = self.next_attempt(now, Purpose::Probe);
        self.probe = Some((attempt, now + PROBE_TIMEOUT));
        self.call(attempt, Method::HEAD, headers, Bytes::new());
    }

    pub(super) fn handle_probe_event(&mut self, now: Now, event: &Event) {
        match event {
            Event::End(End::Lost { .. }) => self.lose_node(now),
            Event::End(End::Refused { status, .. }) if *status == MOVED => self.lose_node(now),
            // Whatever else it says, it lives.
            Event::End(_) => self.probe = None,
            Event::Head { .. } | Event::Message(_) | Event::Heard => {}
        }
    }
}
