//! A node that hangs: its socket takes everything and answers nothing.

use super::*;

/// How long a node has to hang before its successor steps in.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// How long the finder looks before it starts a successor.
const BEFORE_START: Duration = Duration::from_millis(1500);
/// How long the finder waits for a node that is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds the first node, and once that was looked at for long enough, the second.
struct Successor {
    folder: PathBuf,
    memory: Arc<Memory>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: bool,
    /// When the second node is there: its search has begun.
    ready_at: Option<Duration>,
    second: Option<FakeNode>,
}

impl Successor {
    fn found(&self, name: &str, epoch: u64) -> Found {
        Found {
            socket: self.folder.join(name),
            epoch,
            url: String::new(),
        }
    }
}

impl Finder for Successor {
    async fn find(&self, want: Want) -> Result<Found, FindError> {
        let now = self.clock.now();
        let ready_at = {
            let mut state = self.state.lock().unwrap();
            if !std::mem::replace(&mut state.found, true) {
                return Ok(self.found("first", 1));
            }
            assert!(want.may_start, "only a request has it looked at");
            *state
                .ready_at
                .get_or_insert(now + BEFORE_START + STALE_AFTER)
        };
        self.clock
            .sleep_until(Some(ready_at.min(now + PATIENCE)))
            .await;
        if self.clock.now() < ready_at {
            return Err(FindError::Transient("it is stale".to_owned()));
        }
        let mut state = self.state.lock().unwrap();
        let second = || FakeNode::start(&self.folder.join("second"), &self.memory);
        state.second.get_or_insert_with(second);
        Ok(self.found("second", 2))
    }
}

#[tokio::test(start_paused = true)]
async fn calls_at_a_hanging_node_are_answered_by_its_successor_in_stale_after_and_two_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (Memory::new(), Memory::new());
    let _hanging = FakeNode::start(&folder.path().join("first"), &first);
    second.held.add_permits(8);
    let clock = Clock::start();
    let mut client = Client::of(Successor {
        folder: folder.path().to_owned(),
        memory: Arc::clone(&second),
        clock,
        state: Mutex::default(),
    });
    client.initialize(&first).await;
    let began = clock.now();

    for id in 10..18 {
        client.request(id, "hold").await;
    }
    let mut answers = Vec::new();
    for _ in 10..18 {
        answers.push(client.answer().await);
    }

    assert_eq!(
        ids(&answers),
        ["10", "11", "12", "13", "14", "15", "16", "17"]
    );
    let taken = clock.now().saturating_sub(began);
    assert!(taken <= STALE_AFTER + Duration::from_secs(2), "{taken:?}");
    let numbers = |memory: &Memory| {
        let mut numbers: Vec<(String, Bytes)> = memory
            .seen()
            .iter()
            .filter(|seen| seen.method() == "hold")
            .map(|seen| (seen.header(&EARSHOT_REQUEST).to_owned(), seen.body.clone()))
            .collect();
        numbers.sort();
        numbers.dedup();
        numbers
    };
    let again: Vec<_> = numbers(&second);
    assert_eq!(again.len(), 8, "each frame keeps its number: {again:?}");
}
