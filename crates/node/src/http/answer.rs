//! Answers: JSON, and the one form of every error.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use earshot_capability::{Code, Failure, RequestId};
use serde::Serialize;

/// An error on its way out: [`render`] gives it its request id.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    failure: Failure,
}

impl Refusal {
    /// Refuses with a status that says more than the code's own.
    pub(super) const fn new(status: StatusCode, failure: Failure) -> Self {
        Self { status, failure }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = StatusCode::from_u16(failure.code.status())
            .expect("every code has a status that HTTP knows");
        Self { status, failure }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the error object into an answer that is an error, and leaves every other as it is.
pub(super) fn render(response: &mut Response, request_id: &RequestId) {
    let Some(refusal) = response.extensions_mut().remove::<Refusal>() else {
        return;
    };
    let object = refusal.failure.to_json(Some(request_id.as_str()));
    *response.body_mut() = Body::from(object.to_string());
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, JSON);
    if refusal.failure.code == Code::Busy {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
}

/// The media type of every answer that is not a page.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers an object as JSON.
pub(super) fn json(status: StatusCode, object: &impl Serialize) -> Response {
    match serde_json::to_vec(object) {
        Ok(text) => (status, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            Refusal::from(Failure::new(
                Code::Internal,
                "the answer could not be written",
                "Report this as a fault of earshot.",
            ))
            .into_response()
        }
    }
}
