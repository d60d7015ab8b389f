use std::collections::VecDeque;

use earshot_trust::SecretKey;

use super::super::message::tests::row;
use super::*;
use crate::limits::LAST_SEEN_MAX;

const SECOND: Duration = Duration::from_secs(1);

fn key(n: u8) -> PublicKey {
    SecretKey::from_seed([n; 32]).public()
}

fn candidate(n: u8, epoch: u64) -> Candidate {
    Candidate {
        checkout: [n; 16],
        epoch,
        address: format!("{n}.sock"),
    }
}

fn sibling(n: u8, epoch: u64) -> Box<Sibling> {
    Box::new(Sibling {
        node: key(n),
        machine: key(200),
        checkout: [n; 16],
        epoch,
        release: Line::name("0.1.0"),
        wall: crate::Timestamp::UNIX_EPOCH,
        own_number: 0,
        their_number: 0,
    })
}

/// Two nodes, and what is on its way between them.
struct Two {
    now: Now,
    nodes: [Siblings; 2],
    /// What was said to the node of this index, over which link.
    wires: [VecDeque<(LinkNumber, Message)>; 2],
    news: [Vec<RowRef>; 2],
    closed: [Vec<LinkNumber>; 2],
}

impl Two {
    fn new() -> Self {
        Self {
            now: Now::START,
            nodes: [
                Siblings::new(key(1), 10, Facts::default()),
                Siblings::new(key(2), 10, Facts::default()),
            ],
            wires: [VecDeque::new(), VecDeque::new()],
            news: [Vec::new(), Vec::new()],
            closed: [Vec::new(), Vec::new()],
        }
    }

    fn do_all(&mut self, of: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(link, message) => self.wires[1 - of].push_back((link, *message)),
                Effect::Close(link) => self.closed[of].push(link),
                Effect::News(news) => self.news[of].extend(news),
                Effect::Look | Effect::Dial(_) | Effect::Asked { .. } => {}
            }
        }
    }

    fn give(&mut self, to: usize, input: Input) {
        let effects = self.nodes[to].handle(self.now, input);
        self.do_all(to, effects);
    }

    /// Puts a link up that the node of this index dialled.
    fn link(&mut self, number: u64, dialler: usize) {
        for (node, n) in [(0, 2), (1, 1)] {
            let end = if node == dialler {
                End::Dialler
            } else {
                End::Acceptor
            };
            let link = LinkNumber(number);
            let sibling = sibling(n, 10);
            self.give(node, Input::Up { link, sibling, end });
        }
    }

    fn settle(&mut self) {
        while let Some(to) = (0..2).find(|to| !self.wires[*to].is_empty()) {
            if let Some((link, message)) = self.wires[to].pop_front() {
                let message = Box::new(message);
                self.give(to, Input::Got { link, message });
            }
        }
    }

    fn put(&mut self, node: usize, row: SharedRow) {
        let effects = self.nodes[node].put(self.now, row);
        self.do_all(node, effects);
    }

    fn rows_at(&self, node: usize, of: u8) -> Vec<SharedRow> {
        let replica = self.nodes[node].replicas().node(&key(of));
        replica.map_or_else(Vec::new, |replica| replica.rows().cloned().collect())
    }
}

#[test]
fn what_is_put_on_one_board_is_told_to_the_other() {
    let mut two = Two::new();
    two.put(0, row(1, &["src"]));
    two.link(1, 0);
    two.settle();
    assert_eq!(two.rows_at(1, 1), [row(1, &["src"])]);
    two.now = two.now + SECOND;
    two.put(1, row(3, &["docs"]));
    two.settle();
    assert_eq!(two.rows_at(0, 2), [row(3, &["docs"])]);
    let of = |n, id| RowRef {
        node: key(n),
        peer: PeerId::new(id).unwrap(),
    };
    assert_eq!(two.news, [vec![of(2, 3)], vec![of(1, 1)]]);
    assert!(two.nodes[0].unread().is_empty());
}

#[test]
fn changes_close_together_go_into_one_delta() {
    let mut two = Two::new();
    two.link(1, 0);
    two.settle();
    two.now = two.now + SECOND;
    for id in 1..=50 {
        two.put(0, row(id, &["src"]));
    }
    assert_eq!(two.wires[1].len(), 1, "the first at once");
    two.now = two.nodes[0].next_wake().unwrap();
    two.give(0, Input::Woke);
    assert_eq!(two.wires[1].len(), 2, "and the others together");
    two.settle();
    assert_eq!(two.rows_at(1, 1).len(), 50);
    assert_eq!(two.nodes[0].next_wake(), None, "nothing is left to tell");
}

#[test]
fn of_two_links_dialled_at_once_both_sides_keep_the_same() {
    for order in [[(1, 0), (2, 1)], [(2, 1), (1, 0)]] {
        for mirrored in [false, true] {
            let mut two = Two::new();
            for (node, n) in [(0_usize, 2), (1, 1)] {
                // Each side may learn of the two in its own order.
                let order: Vec<_> = if mirrored && node == 1 {
                    order.iter().rev().collect()
                } else {
                    order.iter().collect()
                };
                for (link, dialler) in order {
                    let end = if node == *dialler {
                        End::Dialler
                    } else {
                        End::Acceptor
                    };
                    let link = LinkNumber(*link);
                    let sibling = sibling(n, 10);
                    two.give(node, Input::Up { link, sibling, end });
                }
            }
            assert_eq!(two.closed[0], two.closed[1], "{order:?} {mirrored}");
            assert_eq!(two.closed[0].len(), 1);
            let kept: Vec<_> = two
                .nodes
                .iter()
                .map(|it| it.links.keys().copied().collect::<Vec<_>>())
                .collect();
            assert_eq!(kept[0], kept[1]);
            // What was said over the lost link counts no more; over the other, it does.
            two.settle();
            two.now = two.now + SECOND;
            two.put(0, row(1, &["src"]));
            two.settle();
            assert_eq!(two.rows_at(1, 1), [row(1, &["src"])]);
        }
    }
}

#[test]
fn of_two_links_that_one_side_dialled_both_keep_the_later() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut two = Two::new();
        // The dialler gave them the numbers 1 and 2; its end and the other may be up in any order.
        for (node, n, order) in [(0_usize, 2, [1, 2]), (1, 1, [first, second])] {
            for number in order {
                let end = if node == 0 {
                    End::Dialler
                } else {
                    End::Acceptor
                };
                let mut sibling = sibling(n, 10);
                (sibling.own_number, sibling.their_number) = (number, number);
                let link = LinkNumber(number);
                two.give(node, Input::Up { link, sibling, end });
            }
        }
        assert_eq!(two.closed, [vec![LinkNumber(1)], vec![LinkNumber(1)]]);
    }
}

#[test]
fn who_lost_its_only_link_to_a_choice_that_it_did_not_share_dials_again() {
    let mut node = Siblings::new(key(1), 10, Facts::default());
    let all = Input::Candidates(vec![candidate(2, 10)]);
    node.handle(Now::START, all);
    let (link, end) = (LinkNumber(1), End::Dialler);
    let sibling = sibling(2, 10);
    node.handle(Now::START, Input::Up { link, sibling, end });
    let message = Box::new(Message::Goodbye(Leave::Duplicate));
    node.handle(Now::START, Input::Got { link, message });
    let at = node.next_wake().unwrap();
    let again = node.handle(at, Input::Woke);
    assert_eq!(again, [Effect::Dial(candidate(2, 10))]);
}

#[test]
fn a_node_of_a_newer_epoch_takes_the_place_of_its_predecessor() {
    let mut two = Two::new();
    two.link(1, 0);
    let again = sibling(2, 11);
    let up = Input::Up {
        link: LinkNumber(2),
        sibling: again,
        end: End::Acceptor,
    };
    two.give(0, up);
    assert_eq!(two.closed[0], [LinkNumber(1)]);
    // And one of an older epoch does not.
    let late = Input::Up {
        link: LinkNumber(3),
        sibling: sibling(2, 10),
        end: End::Acceptor,
    };
    two.give(0, late);
    assert_eq!(two.closed[0], [LinkNumber(1), LinkNumber(3)]);
}

#[test]
fn the_rows_of_a_node_that_is_gone_are_last_seen_and_then_forgotten() {
    let mut two = Two::new();
    two.put(1, row(1, &["src"]));
    two.link(1, 0);
    two.settle();
    two.now = two.now + SECOND;
    two.give(
        0,
        Input::Down {
            link: LinkNumber(1),
        },
    );
    let replica = two.nodes[0].replicas().node(&key(2)).unwrap();
    assert!(!replica.is_attached(&row(1, &["src"])));
    assert_eq!(replica.age(two.now + SECOND), SECOND);
    let over = two.now + LAST_SEEN_MAX;
    assert_eq!(two.nodes[0].next_wake(), Some(over));
    two.now = over;
    two.give(0, Input::Woke);
    assert!(two.nodes[0].replicas().node(&key(2)).is_none());
    assert_eq!(two.nodes[0].next_wake(), None);
}

#[test]
fn a_node_that_returns_has_its_rows_once() {
    let mut two = Two::new();
    two.put(1, row(1, &["src"]));
    two.link(1, 0);
    two.settle();
    for node in 0..2 {
        two.give(
            node,
            Input::Down {
                link: LinkNumber(1),
            },
        );
    }
    two.now = two.now + SECOND;
    two.link(2, 1);
    two.settle();
    let replica = two.nodes[0].replicas().node(&key(2)).unwrap();
    assert!(replica.is_attached(&row(1, &["src"])));
    assert_eq!(replica.rows().count(), 1);
    assert_eq!(two.news[0].len(), 1, "it is no news");
}

#[test]
fn a_checkout_whose_node_has_a_new_key_has_one_replica() {
    let mut two = Two::new();
    two.put(1, row(1, &["src"]));
    two.link(1, 0);
    two.settle();
    two.give(
        0,
        Input::Down {
            link: LinkNumber(1),
        },
    );
    let mut other = sibling(2, 11);
    other.node = key(9);
    let up = Input::Up {
        link: LinkNumber(2),
        sibling: other,
        end: End::Acceptor,
    };
    two.give(0, up);
    assert!(two.nodes[0].replicas().node(&key(2)).is_none());
}

#[test]
fn an_ordered_end_says_goodbye() {
    let mut two = Two::new();
    two.put(1, row(1, &["src"]));
    two.link(1, 0);
    two.settle();
    two.give(1, Input::Leave);
    assert_eq!(two.closed[1], [LinkNumber(1)]);
    two.settle();
    let replica = two.nodes[0].replicas().node(&key(2)).unwrap();
    assert!(!replica.is_attached(&row(1, &["src"])));
}

#[test]
fn candidates_are_dialled_once_and_again_with_growing_pauses() {
    let mut node = Siblings::new(key(1), 10, Facts::default());
    let all = || Input::Candidates(vec![candidate(2, 5), candidate(3, 5)]);
    let mut now = Now::START;
    let dials = [Effect::Dial(candidate(2, 5)), Effect::Dial(candidate(3, 5))];
    assert_eq!(node.handle(now, all()), dials);
    assert_eq!(node.handle(now, all()), [], "they are being dialled");
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let why = Line::name("nobody accepts");
        let failed = Input::DialFailed {
            checkout: [2; 16],
            why,
        };
        assert_eq!(node.handle(now, failed), []);
        let at = node.next_wake().unwrap();
        pauses.push(at.since(now).as_millis());
        now = at;
        let again = node.handle(now, Input::Woke);
        assert_eq!(again, [Effect::Dial(candidate(2, 5))]);
    }
    assert_eq!(
        pauses,
        [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]
    );
    let unread = node.unread();
    assert_eq!(unread[0].0, [2; 16]);
    assert_eq!(unread[0].1.to_string(), "nobody accepts");
    assert_eq!(unread[1].1, Unread::Dialling);
    // Its successor is another candidate; one that is gone is none.
    let successor = Input::Candidates(vec![candidate(2, 6)]);
    assert_eq!(node.handle(now, successor), [Effect::Dial(candidate(2, 6))]);
    assert_eq!(node.unread().len(), 1);
}

#[test]
fn a_link_that_breaks_is_looked_after_and_not_dialled_in_a_hurry() {
    let mut node = Siblings::new(key(1), 10, Facts::default());
    let all = || Input::Candidates(vec![candidate(2, 10)]);
    node.handle(Now::START, all());
    for failures in 0..3 {
        let link = LinkNumber(failures);
        let sibling = sibling(2, 10);
        let end = End::Dialler;
        node.handle(Now::START, Input::Up { link, sibling, end });
        let down = node.handle(Now::START, Input::Down { link });
        assert_eq!(down, [Effect::Look]);
        assert_eq!(node.handle(Now::START, all()), [], "it waits");
    }
    let first = Now::START + REDIAL_MIN * 4;
    assert_eq!(node.next_wake(), Some(first), "it never said what it holds");
}

#[test]
fn a_question_is_answered_by_those_who_are_current_and_ends_at_its_deadline() {
    let mut two = Two::new();
    two.link(1, 0);
    two.settle();
    two.now = two.now + SECOND;
    two.put(1, row(1, &["src"]));
    let deadline = two.now + SECOND;
    let ask = |number| Input::Ask { number, deadline };
    // Answered: what it told before comes first.
    let effects = two.nodes[0].handle(two.now, ask(1));
    two.do_all(0, effects);
    let (link, question) = two.wires[1].pop_front().unwrap();
    let message = Box::new(question);
    two.give(1, Input::Got { link, message });
    let mut answers = Vec::new();
    while let Some((link, message)) = two.wires[0].pop_front() {
        let message = Box::new(message);
        answers.extend(two.nodes[0].handle(two.now, Input::Got { link, message }));
    }
    let nobody = Effect::Asked {
        number: 1,
        unread: Vec::new(),
    };
    assert_eq!(answers.last(), Some(&nobody));
    assert_eq!(two.rows_at(0, 2).len(), 1);
    // Silent.
    two.nodes[0].handle(two.now, ask(2));
    assert_eq!(two.nodes[0].next_wake(), Some(deadline));
    let over = two.nodes[0].handle(deadline, Input::Woke);
    let silent = Effect::Asked {
        number: 2,
        unread: vec![([2; 16], Unread::Silent)],
    };
    assert_eq!(over, [silent]);
    // Gone meanwhile.
    two.nodes[0].handle(two.now, ask(3));
    let down = two.nodes[0].handle(
        two.now,
        Input::Down {
            link: LinkNumber(1),
        },
    );
    let gone = Effect::Asked {
        number: 3,
        unread: Vec::new(),
    };
    assert!(down.contains(&gone), "{down:?}");
    // Nobody to ask.
    let alone = two.nodes[0].handle(two.now, ask(4));
    assert!(matches!(&alone[..], [Effect::Asked { number: 4, .. }]));
}

#[test]
fn a_delta_that_was_lost_is_made_good_by_everything() {
    let mut two = Two::new();
    two.link(1, 0);
    two.settle();
    for id in 1..=3 {
        two.now = two.now + SECOND;
        two.put(0, row(id, &["src"]));
        if id == 2 {
            two.wires[1].clear();
        }
    }
    two.settle();
    assert_eq!(two.rows_at(1, 1).len(), 3);
}
