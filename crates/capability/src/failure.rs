//! Errors: one enum, the same word on every surface.

use std::fmt;

use earshot_trust::Denial;
use serde::Serialize;

/// What kind of error it is: the same word over MCP, HTTP and the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The input does not fit the schema or a stated rule.
    InvalidInput,
    /// The capability needs an identity that the caller did not supply.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// What was named does not exist.
    NotFound,
    /// It contradicts what is already there.
    Conflict,
    /// It was there and is not any more; asking again does not help.
    Gone,
    /// It exceeds a limit that the message names.
    TooLarge,
    /// The caller could do this in another way, which the remedy names.
    Refused,
    /// Too much at once; later it will do.
    Busy,
    /// Something that this needs is not there right now.
    Unavailable,
    /// A fault of earshot itself.
    Internal,
}

impl Code {
    /// Every code, in the order of their HTTP statuses.
    pub const ALL: [Self; 11] = [
        Self::InvalidInput,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::Gone,
        Self::TooLarge,
        Self::Refused,
        Self::Busy,
        Self::Internal,
        Self::Unavailable,
    ];

    /// Returns the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// Returns the HTTP status that belongs to it.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidInput => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Gone => 410,
            Self::TooLarge => 413,
            Self::Refused => 422,
            Self::Busy => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// Reads the word back, as a client of another node does.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as its caller sees it: what went wrong, and the one thing to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub code: Code,
    /// One sentence without a final full stop. It never repeats a secret.
    pub message: String,
    /// One sentence that says what to do next.
    pub remedy: String,
}

impl Failure {
    /// Makes an error.
    pub fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Returns the object that HTTP, and the CLI with `--format json`, print. What failed before
    /// it was a request has no id.
    pub fn to_json(&self, request_id: Option<&str>) -> serde_json::Value {
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'a str,
            message: &'a str,
            remedy: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            request_id: Option<&'a str>,
        }
        let body = Body {
            code: self.code.as_str(),
            message: &self.message,
            remedy: &self.remedy,
            request_id,
        };
        serde_json::json!({ "error": body })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.code, self.message, self.remedy)
    }
}

impl std::error::Error for Failure {}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let code = if denial.is_malformed() {
            Code::InvalidInput
        } else {
            Code::Forbidden
        };
        Self::new(code, denial.to_string(), denial.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_statuses_are_the_contract() {
        let table: Vec<_> = Code::ALL
            .iter()
            .map(|code| (code.as_str(), code.status()))
            .collect();
        assert_eq!(
            table,
            [
                ("invalid_input", 400),
                ("unauthenticated", 401),
                ("forbidden", 403),
                ("not_found", 404),
                ("conflict", 409),
                ("gone", 410),
                ("too_large", 413),
                ("refused", 422),
                ("busy", 429),
                ("internal", 500),
                ("unavailable", 503),
            ]
        );
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
        }
        assert_eq!(Code::parse("other"), None);
    }

    #[test]
    fn an_error_reads_as_code_message_remedy() {
        let failure = Failure::new(Code::NotFound, "no such thing", "Look again.");
        assert_eq!(failure.to_string(), "not_found: no such thing. Look again.");
        assert_eq!(failure.to_json(Some("r-1"))["error"]["request_id"], "r-1");
        let without = failure.to_json(None);
        assert!(without["error"].get("request_id").is_none(), "{without}");
    }
}
