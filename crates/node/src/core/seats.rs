//! The highest number that each seat was heard with, of so many seats as the journal knows.

use std::collections::BTreeMap;

use earshot_store::SeatHash;

/// Notes a number of a seat, and says whether the seat is a new one. Of more than `most` seats one
/// goes, whichever comes first: it is missed only where the journal is lost as well.
pub(super) fn note(
    seats: &mut BTreeMap<SeatHash, u64>,
    seat: SeatHash,
    n: u64,
    most: usize,
) -> bool {
    if let Some(seen) = seats.get_mut(&seat) {
        *seen = n.max(*seen);
        return false;
    }
    if seats.len() >= most {
        seats.pop_first();
    }
    seats.insert(seat, n);
    true
}

#[cfg(test)]
mod tests {
    use earshot_proto::board::PeerKey;

    use super::*;

    #[test]
    fn numbers_only_rise_and_seats_that_come_and_go_do_not_fill_the_memory() {
        let seat = |n: u8| SeatHash::of(&PeerKey::Seat([n; 16]));
        let mut seats = BTreeMap::new();
        for (n, new) in [(5, true), (3, false), (7, false)] {
            assert_eq!(note(&mut seats, seat(0), n, 3), new);
        }
        assert_eq!(seats[&seat(0)], 7);
        for at in 1..200 {
            assert!(note(&mut seats, seat(at), 1, 3));
            assert!(seats.len() <= 3 && seats.contains_key(&seat(at)));
        }
    }
}
