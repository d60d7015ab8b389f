use rmcp::transport::streamable_http_server::session::SessionManager as _;

use super::{manager::WireError, *};
use crate::testing::FakeHost;

const IDLE: Duration = Duration::from_secs(90);

fn sessions(max: usize) -> (Arc<WireSessions>, Manager) {
    let shared = Arc::new(Shared::new(FakeHost::new(), CancellationToken::new()));
    let sessions = WireSessions::new(shared, max, IDLE, TaskTracker::new());
    (Arc::clone(&sessions), Manager(sessions))
}

fn open(sessions: &Arc<WireSessions>, id: &SessionId) -> Streaming {
    let (_, number) = sessions.hear(id).unwrap();
    sessions.ask(id, number).unwrap()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_forgotten_and_a_heard_one_is_not() {
    let (sessions, manager) = sessions(10);
    let shutdown = CancellationToken::new();
    let watch = sessions
        .tracker
        .spawn(Arc::clone(&sessions).watch(shutdown.clone()));
    let (silent, _worker) = manager.create_session().await.unwrap();
    let (heard, _worker) = manager.create_session().await.unwrap();
    pass(60).await;
    assert!(sessions.touch(&heard));
    pass(29).await;
    assert!(sessions.knows(&silent), "89 s are not too long");
    pass(17).await;
    assert!(!sessions.knows(&silent));
    assert!(sessions.knows(&heard));
    assert!(!sessions.touch(&silent));
    pass(60).await;
    assert_eq!(sessions.count(), 0);
    shutdown.cancel();
    watch.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_session_and_its_end_begins_the_silence() {
    let (sessions, manager) = sessions(10);
    let shutdown = CancellationToken::new();
    sessions
        .tracker
        .spawn(Arc::clone(&sessions).watch(shutdown.clone()));
    let (id, _worker) = manager.create_session().await.unwrap();
    let first = open(&sessions, &id);
    let second = open(&sessions, &id);
    pass(1200).await;
    drop(first);
    pass(1200).await;
    assert!(sessions.knows(&id), "one of two streams is still open");
    drop(second);
    pass(80).await;
    assert!(sessions.knows(&id));
    pass(30).await;
    assert!(!sessions.knows(&id));
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_full_house_gives_up_only_who_has_been_silent_long_enough() {
    let (sessions, manager) = sessions(2);
    let admission = sessions.admit(Owner::default()).unwrap();
    let (first, _worker) = manager.create_session().await.unwrap();
    drop((admission, open(&sessions, &first)));
    pass(10).await;
    let (second, _worker) = manager.create_session().await.unwrap();
    drop(open(&sessions, &second));
    assert!(
        sessions.admit(Owner::default()).is_err(),
        "nobody is silent yet"
    );
    pass(85).await;
    let admission = sessions.admit(Owner::default()).unwrap();
    assert!(!sessions.knows(&first), "the longest silent one made room");
    assert!(sessions.knows(&second));
    assert!(
        sessions.admit(Owner::default()).is_err(),
        "an opening counts before it is done"
    );
    drop(admission);
    pass(10).await;
    let _open = open(&sessions, &second);
    let (third, _worker) = manager.create_session().await.unwrap();
    drop(open(&sessions, &third));
    pass(10).await;
    assert!(
        sessions.admit(Owner::default()).is_err(),
        "an open stream is not silence"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_house_gives_up_who_opened_and_asked_nothing_before_anybody_else() {
    let (sessions, manager) = sessions(3);
    let (used, _worker) = manager.create_session().await.unwrap();
    drop(open(&sessions, &used));
    let (unused, _worker) = manager.create_session().await.unwrap();
    let (later, _worker) = manager.create_session().await.unwrap();
    assert!(
        sessions.admit(Owner::default()).is_err(),
        "a handshake has just been made"
    );
    pass(15).await;
    assert!(sessions.touch(&unused), "what is heard is not silent");
    drop(sessions.admit(Owner::default()).unwrap());
    assert!(sessions.knows(&used) && sessions.knows(&unused));
    assert!(!sessions.knows(&later));
    assert_eq!(sessions.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_worker_has_ended_is_unknown() {
    let (sessions, manager) = sessions(2);
    let (id, worker) = manager.create_session().await.unwrap();
    let (ended, _) = sessions.hear(&id).unwrap();
    end(ended).await;
    drop(worker);
    pass(1).await;
    let stream = manager.create_standalone_stream(&id).await;
    assert!(matches!(stream, Err(WireError::Ended(_))));
    drop(stream);
    assert!(!sessions.knows(&id));
    assert!(
        manager.close_session(&id).await.is_ok(),
        "ending it twice is no error"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_lost_session_is_none_of_the_one_that_came_back() {
    let host = FakeHost::new();
    let dyn_host: Arc<dyn crate::host::McpHost> = Arc::<FakeHost>::clone(&host);
    let shared = Arc::new(Shared::new(dyn_host, CancellationToken::new()));
    let sessions = WireSessions::new(shared, 10, IDLE, TaskTracker::new());
    let manager = Manager(Arc::clone(&sessions));
    let (id, _worker) = manager.create_session().await.unwrap();
    let handshake = serde_json::json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "bank", "version": "1" },
    });
    host.kept.lock().unwrap().insert(id.to_string(), handshake);
    let (_, number) = sessions.hear(&id).unwrap();
    let old = sessions.open(&id, number).unwrap();
    sessions.lose(&id, number);
    assert_eq!(
        sessions.recall(&id, Owner::default()).await,
        Found::Here,
        "the host keeps what was lost here"
    );
    manager.close_session(&id).await.unwrap();
    sessions.lose(&id, number);
    assert!(sessions.knows(&id), "the end of the first is not its end");
    let (_, number) = sessions.hear(&id).unwrap();
    let own = sessions.open(&id, number).unwrap();
    drop(old);
    pass(100).await;
    sessions.forget_silent();
    assert!(sessions.knows(&id), "its own stream is still open");
    drop(own);
}
