//! Inputs made of other inputs, from a seed: the same seed makes the same inputs.

/// Longest input that is made: long enough for every limit but those of whole messages.
const INPUT_BYTES_MAX: usize = 8 * 1024;
/// Most changes to one input.
const CHANGES_MAX: u64 = 8;

/// What is put in as it is: syntax, and what has been trouble elsewhere.
const PIECES: [&str; 46] = [
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\u{1b}[31m",
    "\u{1b}]0;x\u{7}",
    "\u{9b}2J",
    "\u{7f}",
    "\u{85}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{fe0f}",
    "\u{e0041}",
    "\u{2028}",
    "e\u{301}",
    "\u{1f468}\u{200d}\u{1f469}",
    "\\ud800",
    "\\u0000",
    "\\u001b",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "-0",
    "1e999",
    "9223372036854775808",
    "1.5",
    "..",
    "../",
    "/",
    "/**",
    "~",
    "%00",
    "localhost",
    "[::1]",
    "127.0.0.1",
];

/// Makes inputs.
#[derive(Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    /// Makes a mutator over these inputs.
    pub const fn new(seeds: Vec<Vec<u8>>, seed: u64) -> Self {
        // The generator stands still at zero.
        let state = seed ^ 0x9e37_79b9_7f4a_7c15;
        Self {
            seeds,
            state: if state == 0 { 1 } else { state },
        }
    }

    /// Returns the next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.index(input.len() + 1);
        let end = at + self.index(input.len() - at + 1).min(64);
        match self.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                let byte = self.next().to_le_bytes()[0];
                input.insert(at, byte);
            }
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].to_vec();
                for _ in 0..=self.below(32) {
                    input.splice(at..at, again.iter().copied());
                }
            }
            4 => {
                let other = self.seed();
                let from = self.index(other.len() + 1);
                input.splice(at..end, other[from..].iter().copied());
            }
            5 => input.truncate(at),
            _ => {
                let piece = PIECES[self.index(PIECES.len())];
                input.splice(at..at, piece.bytes());
            }
        }
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.index(self.seeds.len().max(1));
        self.seeds.get(at).cloned().unwrap_or_default()
    }

    /// Returns a number below a bound that is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// Xorshift: chance is wanted here, and no secret.
    const fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_again_and_another_seed_others() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(vec![b"one".to_vec(), b"two".to_vec()], seed);
            (0..100).map(|_| mutator.input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    }
}
