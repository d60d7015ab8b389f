use tokio::io::AsyncWriteExt as _;

use super::*;

async fn lines_of(input: &[u8], limit: usize) -> Vec<Line> {
    let mut lines = Lines::with_limit(input, limit);
    let mut found = Vec::new();
    loop {
        let line = lines.next().await;
        if line == Line::End {
            return found;
        }
        found.push(line);
    }
}

fn frame(text: &str) -> Line {
    Line::Frame(Bytes::copy_from_slice(text.as_bytes()))
}

#[tokio::test]
async fn blank_lines_marks_and_returns_leave_no_trace() {
    let input = b"not json\n\xef\xbb\xbf{}\r\n\n   \n\r\nlast";

    assert_eq!(
        lines_of(input, 100).await,
        [frame("not json"), frame("{}"), frame("last")]
    );
}

#[tokio::test]
async fn an_oversized_line_is_reported_once_and_skipped() {
    let long = "x".repeat(3 * READ_BYTES);
    let known = format!(r#"{{"id":7,"x":"{long}"}}"#);
    let unknown = format!(r#"{{"x":"{long}","id":7}}"#);
    let input = format!("{known}\n1\n{unknown}\n2\n{known}");

    let found = lines_of(input.as_bytes(), 64).await;

    let seven = Line::Oversized {
        id: Some(Bytes::from_static(b"7")),
    };
    let nobody = Line::Oversized { id: None };
    assert_eq!(
        found,
        [seven.clone(), frame("1"), nobody, frame("2"), seven]
    );
}

#[tokio::test]
async fn the_limit_is_exact_whatever_surrounds_the_line() {
    let input = b"\xef\xbb\xbf1234\r\n12345\n";

    let found = lines_of(input, 4).await;

    assert_eq!(found, [frame("1234"), Line::Oversized { id: None }]);
}

#[tokio::test]
async fn a_dropped_read_loses_nothing() {
    let (mut client, bridge) = tokio::io::duplex(64);
    let mut lines = Lines::new(bridge);
    client.write_all(b"{\"half").await.expect("room");

    assert!(futures_util::poll!(Box::pin(lines.next())).is_pending());
    client.write_all(b"\":1}\nrest").await.expect("room");

    assert_eq!(lines.next().await, frame("{\"half\":1}"));
    let (_, rest) = lines.into_rest();
    assert_eq!(&rest[..], b"rest");
}
