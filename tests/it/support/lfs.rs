//! An LFS server beside the test's git host: contents under `<root>/lfs`, one file each.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::body::{Body, Bytes};
use axum::http::Method;
use axum::response::Response;
use serde_json::{Value, json};

/// Where a content lies.
pub fn place(root: &Path, oid: &str) -> PathBuf {
    root.join("lfs").join(oid)
}

/// The name of a content: its SHA-256, as coreutils tell it.
#[expect(clippy::disallowed_methods, reason = "a test starts programs as they are installed")]
pub fn oid(content: &[u8]) -> String {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let mut child = Command::new("sha256sum").stdin(input).stdout(output).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    String::from_utf8(said).unwrap().split_whitespace().next().unwrap().to_owned()
}

pub fn is_content(path: &str) -> bool {
    path.starts_with("/lfs-contents/")
}

/// What the server has, and where what it lacks is to be put.
pub fn batch(root: &Path, url: &str, body: &Bytes) -> Response {
    let asked: Value = serde_json::from_slice(body).expect("JSON");
    let uploads = asked["operation"] == "upload";
    let answer = |object: &Value| {
        let oid = object["oid"].as_str().expect("an oid");
        let mut said = json!({ "oid": oid, "size": object["size"], "authenticated": true });
        let there = json!({ "href": format!("{url}/lfs-contents/{oid}") });
        match (place(root, oid).is_file(), uploads) {
            (true, true) => {}
            (true, false) => said["actions"] = json!({ "download": there }),
            (false, true) => said["actions"] = json!({ "upload": there }),
            (false, false) => said["error"] = json!({ "code": 404, "message": "not found" }),
        }
        said
    };
    let objects: Vec<Value> = asked["objects"].as_array().unwrap().iter().map(answer).collect();
    let text = json!({ "transfer": "basic", "objects": objects }).to_string();
    let response = Response::builder().header("content-type", "application/vnd.git-lfs+json");
    response.body(Body::from(text)).unwrap()
}

/// Gives or takes a content.
pub fn content(root: &Path, method: &Method, path: &str, body: &Bytes) -> Response {
    let name = path.rsplit('/').next().unwrap();
    let place = place(root, name);
    if method == Method::PUT {
        assert_eq!(oid(body), name);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, body).unwrap();
        return Response::new(Body::empty());
    }
    Response::new(Body::from(std::fs::read(place).unwrap()))
}
