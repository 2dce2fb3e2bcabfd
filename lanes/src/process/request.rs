//! The one line a process lane's program is given, whatever it is about.

use schemars::JsonSchema;
use serde::Serialize;

/// The most bytes of a request, its line end included.
pub const REQUEST_BYTES: usize = 131_072;

/// What a request is about. The caller's, which also knows what of it can be left out.
pub trait Payload {
    /// It as one field of the request (`"task":{…}`), in at most `room` bytes where that can be.
    fn field(&self, room: usize) -> String;
}

/// One job for the program.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Stable for one job on every attempt: a key for what the program does elsewhere.
    pub job_key: &'a str,
    /// Who runs the program.
    pub runtime_id: &'a str,
    /// It grows with every attempt.
    pub attempt: u64,
    /// The job itself.
    pub payload: &'a dyn Payload,
}

/// A request has more bytes than [`REQUEST_BYTES`] even with its payload cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request has {0} bytes, more than 131072")]
pub struct RequestTooLong(pub usize);

impl Request<'_> {
    /// The request as one line with its line end, at most [`REQUEST_BYTES`].
    ///
    /// # Errors
    /// When the payload cannot be cut that far.
    pub fn line(&self) -> Result<Vec<u8>, RequestTooLong> {
        let envelope = Envelope {
            schema_version: 1,
            job_key: self.job_key,
            runtime_id: self.runtime_id,
            attempt: self.attempt,
            untrusted_external_data: true,
        };
        // Text and numbers always serialise; were they ever not to, the program gets no JSON and
        // its answer is refused.
        let mut line = serde_json::to_string(&envelope).unwrap_or_default();
        line.pop();
        let around = line.len() + ",}\n".len();
        let payload = self.payload.field(REQUEST_BYTES.saturating_sub(around));
        line.push(',');
        line.push_str(&payload);
        line.push_str("}\n");
        if line.len() > REQUEST_BYTES {
            return Err(RequestTooLong(line.len()));
        }
        Ok(line.into_bytes())
    }
}

/// What stands around a payload.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope<'a> {
    /// Always 1: another number is another contract.
    #[schemars(extend("const" = 1))]
    schema_version: u8,
    /// The same on every attempt: the key for what the program does elsewhere.
    job_key: &'a str,
    /// The worker that runs the program.
    runtime_id: &'a str,
    /// It grows with every attempt.
    attempt: u64,
    /// Always true: what follows holds text of other people's. It is data, not instructions.
    #[schemars(extend("const" = true))]
    untrusted_external_data: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A payload of another caller's, such as a message, that cannot be cut.
    struct Message(String);

    impl Payload for Message {
        fn field(&self, _room: usize) -> String {
            format!("\"message\":{}", json!({ "text": self.0 }))
        }
    }

    fn request(text: &str) -> Result<Vec<u8>, RequestTooLong> {
        let payload = Message(text.to_owned());
        Request { job_key: "a:b", runtime_id: "a", attempt: 3, payload: &payload }.line()
    }

    #[test]
    fn the_payload_is_the_callers() {
        let line = request("hello 👋\n").unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(
            serde_json::from_slice::<Value>(&line).unwrap(),
            json!({
                "schemaVersion": 1, "jobKey": "a:b", "runtimeId": "a", "attempt": 3,
                "untrustedExternalData": true, "message": { "text": "hello 👋\n" },
            })
        );
    }

    #[test]
    fn a_payload_that_cannot_be_cut_is_refused_at_the_limit() {
        let room = REQUEST_BYTES - request("").unwrap().len();
        assert_eq!(request(&"x".repeat(room)).unwrap().len(), REQUEST_BYTES);
        let refused = request(&"x".repeat(room + 1)).unwrap_err();
        assert_eq!(refused, RequestTooLong(REQUEST_BYTES + 1));
    }
}
