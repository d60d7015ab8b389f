//! A listener that answers everything at once and does nothing for it: what the hostile clients
//! take of the machine when they are not at the node.

use std::convert::Infallible;

use bytes::Bytes;
use earshot_mcp::bridge::headers::{JSON, MCP_SESSION_ID};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::{bench::BenchError, cli::printer::print};

/// Bytes of an answer: about those of a board.
const ANSWER_BYTES: usize = 4_096;

/// Bytes at the beginning of a message in which its id is looked for.
const ID_WITHIN: usize = 64;

/// Prints its url and answers until it is ended.
///
/// # Errors
/// [`BenchError`].
pub(in crate::bench) async fn run() -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    print(&format!("http://{}/mcp\n", listener.local_addr()?));
    let tasks = TaskTracker::new();
    loop {
        // With no descriptors left, the next one that is closed makes room.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        tasks.spawn(async move {
            let service = service_fn(answer);
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            serving.await.ok(); // whoever hangs up has had enough
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut body = request.into_body();
    let mut begun = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref()
            && begun.len() < ID_WITHIN
        {
            begun.extend_from_slice(data.get(..ID_WITHIN.min(data.len())).unwrap_or_default());
        }
    }
    let id = id_in(&String::from_utf8_lossy(&begun));
    let filling = "x".repeat(ANSWER_BYTES);
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"filling\":\"{filling}\"}}}}"
    );
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(MCP_SESSION_ID, HeaderValue::from_static("sink"));
    Ok(response)
}

/// Finds the id that our own clients write near the beginning.
fn id_in(begun: &str) -> u64 {
    let digits = begun.split("\"id\":").nth(1).unwrap_or_default();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_message_is_found() {
        for (begun, id) in [
            (r#"{"jsonrpc":"2.0","id":17,"method":"x"}"#, 17),
            (r#"{"jsonrpc":"2.0","method":"x"}"#, 0),
            ("", 0),
        ] {
            assert_eq!(id_in(begun), id, "{begun}");
        }
    }
}
