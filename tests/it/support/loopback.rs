//! A server on loopback in a thread of its own, as the scripted models are.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// A running server; it ends with its value.
#[derive(Debug)]
pub struct Loopback {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Serves `app` on a free port.
    pub fn start(app: axum::Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    ended = axum::serve(listener, app) => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { port, stop: Some(stop), thread: Some(thread) }
    }

    /// The address a client is given.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
