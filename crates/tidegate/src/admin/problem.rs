//! What is wrong, as a client of the API hears it (RFC 9457).

use super::messages::{Checked, Refusal};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An answer that says what is wrong.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: String,
    /// Of a check.
    checked: Option<Value>,
}

impl Problem {
    /// One clear sentence.
    pub fn new(status: StatusCode, detail: &str) -> Problem {
        Problem { status, detail: detail.trim_end().to_owned(), checked: None }
    }

    /// The master does not do it.
    pub fn of(refusal: Refusal, why: &str) -> Problem {
        let status = match refusal {
            Refusal::Wrong => StatusCode::BAD_REQUEST,
            Refusal::Missing => StatusCode::NOT_FOUND,
            Refusal::Forbidden => StatusCode::FORBIDDEN,
            Refusal::Conflict => StatusCode::CONFLICT,
            Refusal::Changed => StatusCode::PRECONDITION_FAILED,
            Refusal::NotTakenUp => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Problem::new(status, why);
        // What the server says of texts that it does not take up is for the editor, too.
        let checked = (refusal == Refusal::NotTakenUp)
            .then(|| json!([{ "severity": "error", "message": why.trim_end() }]));
        Problem { checked, ..problem }
    }

    /// Texts have mistakes.
    pub fn mistakes(checked: &Checked) -> Problem {
        let detail = "the settings have mistakes: nothing was written";
        let diagnostics = serde_json::to_value(&checked.diagnostics).unwrap_or_default();
        Problem { checked: Some(diagnostics), ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    /// What a request says is wrong.
    pub fn wrong(detail: &str) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The same with what would be right.
    pub fn with_hint(self, hint: &str) -> Problem {
        Problem { detail: format!("{}; {hint}", self.detail), ..self }
    }

    /// The master has answered something else.
    pub fn unexpected() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server has answered something else than was asked",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(checked) = self.checked {
            body["diagnostics"] = checked;
        }
        let mut response = (self.status, body.to_string()).into_response();
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            fields.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"tidegate admin\""),
            );
        }
        response
    }
}
