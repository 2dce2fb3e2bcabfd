//! The way out of a network that lets nobody out by themselves: an HTTP proxy that knows CONNECT and
//! nothing else, and leads to one address whatever it is asked for.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A running proxy; it takes nobody any more once its value is gone.
pub struct Connect {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    to: SocketAddr,
    /// The first line and the login of each request.
    asked: Mutex<Vec<String>>,
    refuses: AtomicBool,
    over: AtomicBool,
}

impl Connect {
    /// On a free port of 127.0.0.1.
    pub fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (asked, refuses, over) =
            (Mutex::default(), AtomicBool::default(), AtomicBool::default());
        let shared = Arc::new(Shared { to, asked, refuses, over });
        let entry = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for line in listener.incoming().map_while(Result::ok) {
                if entry.over.load(Ordering::SeqCst) {
                    break;
                }
                let entry = Arc::clone(&entry);
                std::thread::spawn(move || entry.lead(line));
            }
        });
        Self { addr, shared, thread: Some(thread) }
    }

    /// What HTTPS_PROXY is set to, with a login (`name:password`).
    pub fn url(&self, login: &str) -> String {
        format!("http://{login}@{}", self.addr)
    }

    /// Lets nobody through from now on.
    pub fn refuse(&self) {
        self.shared.refuses.store(true, Ordering::SeqCst);
    }

    /// What it was asked.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Shared {
    fn lead(&self, mut line: TcpStream) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match line.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let login = head.lines().find(|line| line.to_ascii_lowercase().starts_with("proxy-auth"));
        let asked = format!("{}|{}", head.lines().next().unwrap_or(""), login.unwrap_or(""));
        self.asked.lock().unwrap().push(asked);
        if self.refuses.load(Ordering::SeqCst) || !head.starts_with("CONNECT ") {
            let _gone = line.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
            return;
        }
        let Ok(mut there) = TcpStream::connect(self.to) else { return };
        let _gone = line.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
        let (mut from, mut back) = (line.try_clone().unwrap(), there.try_clone().unwrap());
        let up = std::thread::spawn(move || {
            let _over = std::io::copy(&mut from, &mut there);
            let _over = there.shutdown(Shutdown::Write);
        });
        let _over = std::io::copy(&mut back, &mut line);
        let _over = line.shutdown(Shutdown::Both);
        let _over = up.join();
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
