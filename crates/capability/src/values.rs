//! How many values a JSON text holds, counted before it is read: one byte may become a hundred in
//! memory.

/// Most values in one message or input. An agent sends dozens; each costs its reader some hundred
/// bytes more than its text, so that this many cost some ten mebibytes.
pub const VALUES_MAX: usize = 100_000;

/// Says whether a JSON text holds more values than [`VALUES_MAX`]. Of a text that is no JSON it
/// says something and never fails.
pub fn has_too_many_values(json: &[u8]) -> bool {
    let mut values = 0;
    let mut quoted = false;
    let mut escaped = false;
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            // Each value but the outermost comes after one of these; a name counts as well.
            b'[' | b'{' | b',' | b':' if !quoted => {
                values += 1;
                if values > VALUES_MAX {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_stands_in_a_text_is_none() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values - 1));
        assert!(!has_too_many_values(list(VALUES_MAX).as_bytes()));
        assert!(has_too_many_values(list(VALUES_MAX + 1).as_bytes()));
        assert!(has_too_many_values("[".repeat(VALUES_MAX + 1).as_bytes()));
        let pairs = format!("{{{}}}", r#""":0,"#.repeat(VALUES_MAX / 2 + 1));
        assert!(has_too_many_values(pairs.as_bytes()));
        let file = r#"a,b:[{\"\\"#.repeat(VALUES_MAX);
        assert!(!has_too_many_values(
            format!(r#"{{"text":"{file}"}}"#).as_bytes()
        ));
        for odd in ["", "\"", "\"\\", "\\", "]}"] {
            assert!(!has_too_many_values(odd.as_bytes()), "{odd}");
        }
    }
}
