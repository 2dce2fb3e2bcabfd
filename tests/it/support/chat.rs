//! A scripted model server on loopback that speaks as xAI's API does, as far as the real grok needs
//! it: chat completions for the work, responses for a session's title, the list of models, and an
//! issuer of logins that knows nobody.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::loopback::Loopback;
use super::model::{Step, begun};

/// The model it has.
pub const MODEL: &str = "scripted-model";
/// What each answer costs, in the API's unit: 10,000,000,000 are one dollar.
pub const TICKS: u64 = 37_756_000;

/// A running server; it ends with its value.
pub struct Chat {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    seen: Arc<Seen>,
    server: Loopback,
}

struct Seen {
    steps: Vec<Step>,
    tells_cost: bool,
    requests: Mutex<Vec<(String, Value)>>,
}

impl Chat {
    /// Starts it on a free port. Without `tells_cost` its answers have no price.
    pub fn start(tells_cost: bool, steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        let seen = Arc::new(Seen { steps, tells_cost, requests: Mutex::default() });
        let server =
            Loopback::start(axum::Router::new().fallback(answer).with_state(Arc::clone(&seen)));
        Self { port: server.port, seen, server }
    }

    /// The address a client is given.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The logins that chat requests came with, and their bodies, in their order.
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// What the tools gave back, in their order.
    pub fn results(&self) -> Vec<String> {
        let requests = self.requests();
        let Some((_, last)) = requests.last() else { return Vec::new() };
        let messages = last["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let tools = messages.iter().filter(|message| message["role"] == "tool");
        tools.map(|message| text(&message["content"])).collect()
    }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(words) => words.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let login = request.headers().get("authorization").and_then(|v| v.to_str().ok());
    let login = login.unwrap_or_default().to_owned();
    let bytes = axum::body::to_bytes(request.into_body(), 64 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if path.ends_with("/models") {
        let one = json!({ "id": MODEL, "object": "model", "created": 1, "owned_by": "test" });
        return whole(StatusCode::OK, &json!({ "object": "list", "data": [one] }));
    }
    if path.ends_with("/responses") {
        // The title of the session: one that is not given changes nothing.
        return whole(StatusCode::BAD_REQUEST, &json!({ "error": "no titles here" }));
    }
    if !path.ends_with("/chat/completions") {
        return whole(StatusCode::NOT_FOUND, &json!({ "error": "no such path" }));
    }
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let at = messages.iter().filter(|message| message["role"] == "tool").count();
    let step = seen.steps.get(at).or(seen.steps.last()).unwrap().clone();
    seen.requests.lock().unwrap().push((login, body.clone()));
    let (delta, finish) = match step.clone() {
        Step::Refuse(status, words, headers) => {
            let status = StatusCode::from_u16(status).unwrap();
            let mut response = whole(status, &json!({ "error": words }));
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            return response;
        }
        Step::Answer(status, body) => {
            return whole(StatusCode::from_u16(status).unwrap(), &body);
        }
        Step::Cut | Step::Half | Step::Hang => {
            let delta = json!([{ "index": 0, "delta": { "role": "assistant", "content": "" } }]);
            let piece = json!({
                "id": "chatcmpl-1", "created": 1, "model": body["model"],
                "object": "chat.completion.chunk", "choices": delta,
            });
            return begun(&step, &format!("data: {piece}\n\n"));
        }
        Step::Say(words) => (json!({ "content": words }), "stop"),
        Step::Stop(reason) => (json!({ "content": "…" }), reason),
        Step::Call(name, input) => {
            let function = json!({ "name": name, "arguments": input.to_string() });
            let id = format!("call_{at}");
            let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
            (json!({ "tool_calls": [call] }), "tool_calls")
        }
    };
    seen.stream(&body, &delta, finish)
}

impl Seen {
    /// One answer as the stream of pieces in which the API sends it.
    fn stream(&self, body: &Value, delta: &Value, finish: &str) -> Response<Body> {
        let mut usage = json!({
            "prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050,
            "prompt_tokens_details": { "cached_tokens": 300 },
            "completion_tokens_details": { "reasoning_tokens": 7 },
        });
        if self.tells_cost {
            usage["cost_in_usd_ticks"] = json!(TICKS);
        }
        let piece = |choices: Value, usage: Option<&Value>| {
            let mut piece = json!({
                "id": "chatcmpl-1", "created": 1, "model": body["model"],
                "object": "chat.completion.chunk", "choices": choices,
            });
            if let Some(usage) = usage {
                piece["usage"] = usage.clone();
            }
            format!("data: {piece}\n\n")
        };
        let choice = |delta: &Value, finish: Option<&str>| json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        let text = [
            piece(choice(&json!({ "role": "assistant", "content": "" }), None), None),
            piece(choice(delta, None), None),
            piece(choice(&json!({}), Some(finish)), None),
            piece(json!([]), Some(&usage)),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat();
        let builder = Response::builder().header("content-type", "text/event-stream");
        builder.body(Body::from(text)).unwrap()
    }
}

fn whole(status: StatusCode, body: &Value) -> Response<Body> {
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(Body::from(body.to_string())).unwrap()
}
