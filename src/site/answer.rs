//! A handler's answer as JSON, with room for the headers that the gate adds: it is most of what a
//! doorbell's answer costs.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::Refusal;
use crate::api::{Code, Problem};

/// Headers of an answer: its type and length, and what the gate signs it with.
const HEADERS: usize = 8;

/// 200 with this as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let body = match serde_json::to_vec(&self.0) {
            Ok(body) => body,
            Err(error) => {
                let detail = format!("the answer is no JSON: {error}");
                return Refusal(Problem::new(Code::Internal, detail)).into_response();
            }
        };
        let mut response = Response::new(body.into());
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.headers_mut() = headers;
        response
    }
}
