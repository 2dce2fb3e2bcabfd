//! A scripted model server on loopback: Anthropic's messages API, and OpenAI's responses API, as far
//! as the real programs need them. It answers from a list of steps and keeps every request.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{iter, once, pending};
use serde_json::{Value, json};

use super::loopback::Loopback;

/// What the model does next. The step taken is the number of tool results it was given so far;
/// past the end the last one is taken again.
#[derive(Clone, Debug)]
pub enum Step {
    /// Calls one tool.
    Call(&'static str, Value),
    /// Says its last words.
    Say(&'static str),
    /// Stops for this reason, in the API's words.
    Stop(&'static str),
    /// Answers with this status, kind of error and headers.
    Refuse(u16, &'static str, &'static [(&'static str, &'static str)]),
    /// Answers with this status and body.
    Answer(u16, Value),
    /// Begins an answer, and the line is cut.
    Cut,
    /// Begins an answer, and ends it there.
    Half,
    /// Begins an answer, and never goes on.
    Hang,
}

/// What each answer of the responses API says it used: input in all, of it cached, output.
pub const RESPONSE_TOKENS: [u64; 3] = [1000, 300, 50];

/// A running server; it ends with its value.
#[derive(Debug)]
pub struct Model {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    seen: Arc<Seen>,
    server: Loopback,
}

#[derive(Debug)]
struct Seen {
    steps: Vec<Step>,
    requests: Mutex<Vec<Value>>,
    logins: Mutex<Vec<String>>,
}

impl Model {
    /// Starts it on a free port.
    pub fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let seen = Arc::new(Seen {
            steps: steps.into_iter().collect(),
            requests: Mutex::default(),
            logins: Mutex::default(),
        });
        let server =
            Loopback::start(axum::Router::new().fallback(answer).with_state(Arc::clone(&seen)));
        Self { port: server.port, seen, server }
    }

    /// The address a client is given.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The bodies of the messages asked for, in their order.
    pub fn requests(&self) -> Vec<Value> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// What each request of the responses API showed for its login.
    pub fn logins(&self) -> Vec<String> {
        self.seen.logins.lock().unwrap().clone()
    }
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let login = request.headers().get("authorization").map(|value| value.to_str().unwrap());
    let login = login.unwrap_or_default().to_owned();
    let bytes = axum::body::to_bytes(request.into_body(), 64 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if path.ends_with("/responses") {
        seen.logins.lock().unwrap().push(login);
        return seen.respond(&body);
    }
    if !path.ends_with("/messages") {
        return whole(StatusCode::NOT_FOUND, &error("not_found_error"));
    }
    let step = seen.next(&body);
    seen.requests.lock().unwrap().push(body.clone());
    let (content, stop) = match step.clone() {
        Step::Refuse(status, kind, headers) => {
            let mut response = whole(StatusCode::from_u16(status).unwrap(), &error(kind));
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            return response;
        }
        Step::Answer(status, body) => {
            return whole(StatusCode::from_u16(status).unwrap(), &body);
        }
        Step::Cut | Step::Half | Step::Hang => {
            return begun(&step, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        }
        Step::Say(words) => (json!({ "type": "text", "text": words }), "end_turn"),
        Step::Stop(reason) => (json!({ "type": "text", "text": "…" }), reason),
        Step::Call(name, input) => {
            let id = format!("toolu_{}", tool_results(&body));
            (json!({ "type": "tool_use", "id": id, "name": name, "input": input }), "tool_use")
        }
    };
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
        "content": [content], "stop_reason": stop, "stop_sequence": null,
        "usage": { "input_tokens": 10, "output_tokens": 5 },
    });
    if body["stream"] == true { events(&message) } else { whole(StatusCode::OK, &message) }
}

impl Seen {
    /// Requests without tools (titles, checks) are none of the script's; a refusal counts for them
    /// as well.
    fn next(&self, body: &Value) -> Step {
        let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let at = if has_tools { tool_results(body) } else { 0 };
        match self.steps.get(at).or(self.steps.last()).unwrap() {
            step @ (Step::Refuse(..) | Step::Answer(..)) => step.clone(),
            step if has_tools => step.clone(),
            _ => Step::Say("ok"),
        }
    }
}

impl Seen {
    /// One answer of the responses API. The newer models get their tools in the conversation, and
    /// one tool that runs a script which calls the others.
    fn respond(&self, body: &Value) -> Response<Body> {
        let input = body["input"].as_array().map_or(&[][..], Vec::as_slice);
        let kinds: Vec<&str> = input.iter().filter_map(|item| item["type"].as_str()).collect();
        let is_output = |item: &&Value| item["call_id"].is_string() && !item["output"].is_null();
        let running: Vec<_> = input.iter().filter(is_output).map(running).collect();
        let at = running.iter().filter(|session| session.is_none()).count();
        let step = match running.last() {
            Some(Some(session)) => Step::Call(
                "write_stdin",
                json!({ "session_id": session, "chars": "", "yield_time_ms": 20_000 }),
            ),
            _ => self.steps.get(at).or(self.steps.last()).unwrap().clone(),
        };
        self.requests.lock().unwrap().push(body.clone());
        let call_id = format!("call_{}", running.len());
        let item = match step.clone() {
            Step::Answer(status, body) => {
                return whole(StatusCode::from_u16(status).unwrap(), &body);
            }
            Step::Refuse(status, kind, _) => {
                return whole(StatusCode::from_u16(status).unwrap(), &error(kind));
            }
            Step::Cut | Step::Half | Step::Hang => {
                let head = json!({ "id": "resp_0", "object": "response", "status": "in_progress" });
                let head = json!({ "type": "response.created", "response": head });
                return begun(&step, &format!("event: response.created\ndata: {head}\n\n"));
            }
            Step::Stop(reason) => {
                let why = json!({ "reason": reason });
                let response = json!({
                    "id": "resp_0", "object": "response", "status": "incomplete",
                    "incomplete_details": why, "output": [],
                });
                return stream(&[json!({ "type": "response.incomplete", "response": response })]);
            }
            Step::Say(words) => json!({
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": words, "annotations": [] }],
            }),
            Step::Call(name, input) if kinds.contains(&"additional_tools") => json!({
                "type": "custom_tool_call", "id": "ctc_1", "call_id": call_id, "name": "exec",
                "status": "completed", "input": format!("text(await tools.{name}({input}));"),
            }),
            Step::Call(name, input) => json!({
                "type": "function_call", "id": "fc_1", "call_id": call_id, "name": name,
                "status": "completed", "arguments": input.to_string(),
            }),
        };
        let [input, cached, output] = RESPONSE_TOKENS;
        let response = json!({
            "id": format!("resp_{at}"), "object": "response", "created_at": 1,
            "model": body["model"], "status": "completed", "output": [item],
            "usage": {
                "input_tokens": input, "input_tokens_details": { "cached_tokens": cached },
                "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 7 },
                "total_tokens": input + output,
            },
        });
        let mut head = response.clone();
        head["status"] = json!("in_progress");
        head["output"] = json!([]);
        stream(&[
            json!({ "type": "response.created", "response": head }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
            json!({ "type": "response.completed", "response": response }),
        ])
    }
}

/// The session of a command that had not ended when codex would wait for it no longer, which is half
/// a minute at most: the model waits on, whatever the machine.
fn running(output: &Value) -> Option<u64> {
    let text = output["output"].to_string().replace('\\', "");
    let told = ["Process running with session ID ", "\"session_id\":"];
    let after = told.iter().find_map(|words| Some(text.split_once(words)?.1))?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn tool_results(body: &Value) -> usize {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == "tool_result").count()
}

fn error(kind: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": format!("scripted {kind}") } })
}

fn whole(status: StatusCode, body: &Value) -> Response<Body> {
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(Body::from(body.to_string())).unwrap()
}

/// One message as the stream of events in which the API sends it.
fn events(message: &Value) -> Response<Body> {
    let block = &message["content"][0];
    let (empty, delta) = if block["type"] == "text" {
        (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": block["text"] }),
        )
    } else {
        let mut empty = block.clone();
        empty["input"] = json!({});
        let input = block["input"].to_string();
        (empty, json!({ "type": "input_json_delta", "partial_json": input }))
    };
    let mut head = message.clone();
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    let ended = json!({ "stop_reason": message["stop_reason"], "stop_sequence": null });
    stream(&[
        json!({ "type": "message_start", "message": head }),
        json!({ "type": "content_block_start", "index": 0, "content_block": empty }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": ended, "usage": { "output_tokens": 5 } }),
        json!({ "type": "message_stop" }),
    ])
}

/// An answer that does not come to its end: this much of it, and then what the step says.
pub fn begun(step: &Step, start: &str) -> Response<Body> {
    let start = iter([Ok::<_, std::io::Error>(Bytes::from(start.to_owned()))]);
    let body = match step {
        Step::Hang => Body::from_stream(start.chain(pending())),
        Step::Half => Body::from_stream(start),
        _ => {
            // What there is of it is sent first.
            let cut = async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the line is cut"))
            };
            Body::from_stream(start.chain(once(cut)))
        }
    };
    let builder = Response::builder().header("content-type", "text/event-stream");
    builder.body(body).unwrap()
}

fn stream(events: &[Value]) -> Response<Body> {
    let text: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect();
    let builder = Response::builder().header("content-type", "text/event-stream");
    builder.body(Body::from(text)).unwrap()
}
