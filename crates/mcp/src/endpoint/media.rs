//! The Accept and Content-Type headers, in every spelling that clients send.

use http::{HeaderMap, header};

/// The weight of a media range that is acceptable without reservation, in thousandths.
const FULL_WEIGHT: u16 = 1000;

/// How gladly a client takes each of the two forms of an answer, in thousandths; 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// `application/json`.
    pub(crate) json: u16,
    /// `text/event-stream`.
    pub(crate) stream: u16,
}

impl Accepts {
    /// Reads the Accept headers. None, or blank ones, take anything.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let ranges: Vec<(String, u16)> = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| split_unquoted(value, ','))
            .filter_map(read_range)
            .collect();
        if ranges.is_empty() {
            return Self {
                json: FULL_WEIGHT,
                stream: FULL_WEIGHT,
            };
        }
        Self {
            json: weight(&ranges, "application/json", "application/*"),
            stream: weight(&ranges, "text/event-stream", "text/*"),
        }
    }

    /// Says whether the client takes neither form.
    pub(crate) const fn nothing(self) -> bool {
        self.json == 0 && self.stream == 0
    }

    /// Says whether JSON is the better answer, where either would do.
    pub(crate) const fn prefers_json(self) -> bool {
        self.json > 0 && self.json >= self.stream
    }
}

/// Says whether the Content-Type is JSON, whatever its case and parameters.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| split_unquoted(value, ';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Returns the weight of a media type: that of the most exact range which covers it.
fn weight(ranges: &[(String, u16)], exact: &str, family: &str) -> u16 {
    [exact, family, "*/*"]
        .iter()
        .find_map(|wanted| {
            ranges
                .iter()
                .filter(|(range, _)| range == wanted)
                .map(|(_, weight)| *weight)
                .max()
        })
        .unwrap_or(0)
}

fn read_range(text: &str) -> Option<(String, u16)> {
    let mut parts = split_unquoted(text, ';');
    let range = parts.next()?.trim().to_ascii_lowercase();
    let weight = parts
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .map_or(FULL_WEIGHT, |(_, value)| read_weight(value.trim()));
    (!range.is_empty()).then_some((range, weight))
}

/// Reads a weight; one that is no number does not make its range unacceptable.
fn read_weight(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" if digits => format!("{fraction:0<3}").parse().unwrap_or(FULL_WEIGHT),
        _ => FULL_WEIGHT,
    }
}

/// Splits at a delimiter that does not stand within a quoted string.
fn split_unquoted(text: &str, delimiter: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        c == delimiter && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(values: &[&str]) -> (u16, u16) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, value.parse().unwrap());
        }
        let read = Accepts::read(&headers);
        (read.json, read.stream)
    }

    #[test]
    fn accept_in_every_spelling() {
        for (values, json, stream) in [
            (vec![], 1000, 1000),
            (vec![""], 1000, 1000),
            (vec!["*/*"], 1000, 1000),
            (vec!["application/json"], 1000, 0),
            (vec!["APPLICATION/JSON"], 1000, 0),
            (vec!["text/event-stream"], 0, 1000),
            (vec!["text/event-stream, application/json"], 1000, 1000),
            (vec!["text/event-stream", "application/json"], 1000, 1000),
            (vec!["application/*, text/*"], 1000, 1000),
            (
                vec!["application/json;q=0.5, text/event-stream;q=1"],
                500,
                1000,
            ),
            (vec!["application/json; q=0.25 , */*;q=0.125"], 250, 125),
            (vec!["application/json;q=0"], 0, 0),
            (vec!["*/*, application/json;q=0"], 0, 1000),
            (vec!["application/json;q=abc"], 1000, 0),
            (vec![r#"application/json;profile="a,b;q=0""#], 1000, 0),
            (vec!["text/html"], 0, 0),
            (vec!["application/jsonx"], 0, 0),
        ] {
            assert_eq!(accepts(&values), (json, stream), "{values:?}");
        }
    }

    #[test]
    fn content_type_in_every_spelling() {
        for (value, json) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("Application/JSON", true),
            ("application/json;charset=\"UTF-8\"", true),
            ("application/json ; foo=bar", true),
            ("application/xml", false),
            ("application/jsonx", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), json, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()), "absent");
    }
}
