//! How many values a message may hold, whatever its length.

/// Most values of one message: far more than any call has arguments. Read, a value takes up to a
/// hundred times the two bytes that it may be written in.
pub const VALUES_MAX: usize = 65_536;

/// Says whether a text of JSON holds more than [`VALUES_MAX`] values, without reading it: what is
/// counted is what separates and opens them outside of strings.
pub fn has_too_many_values(json: &[u8]) -> bool {
    // Each value but the first follows one byte of structure.
    if json.len() <= VALUES_MAX {
        return false;
    }
    let (mut values, mut in_text, mut escaped) = (1_usize, false, false);
    for byte in json {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b',' | b':' | b'[' | b'{' => values += 1,
            _ => {}
        }
    }
    values > VALUES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_text_is_no_value() {
        let commas = ",".repeat(2 * VALUES_MAX);
        let numbers = format!("[{}0]", "0,".repeat(2 * VALUES_MAX));
        let empty = format!("[{}[]]", "[],".repeat(VALUES_MAX));
        let deep = "[".repeat(2 * VALUES_MAX);
        for (json, beyond) in [
            (String::new(), false),
            (format!("{{\"a\":\"{commas}\"}}"), false),
            (format!("{{\"a\":\"\\\"{commas}\"}}"), false),
            (format!("{{\"a\":\"\\\\\",\"b\":{numbers}}}"), true),
            (numbers, true),
            (empty, true),
            (deep, true),
            (format!("[{}0]", "0,".repeat(VALUES_MAX - 3)), false),
        ] {
            let found = has_too_many_values(json.as_bytes());
            assert_eq!(found, beyond, "{json:.40}");
        }
    }
}
