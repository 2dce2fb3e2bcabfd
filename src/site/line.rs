//! One connection, over the network or on the socket, with time-outs for whatever its client leaves
//! undone: a head that does not end, an answer that is not read, silence between requests.
//!
//! Nothing is armed while a request is under way, so a held doorbell costs no timer here.

use std::convert::Infallible;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures_util::task::AtomicWaker;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::limits::Peer;

/// How often a connection that waits for its client is looked at; every time-out here is so many
/// of these.
pub const TICK: Duration = Duration::from_secs(5);

/// Ticks until an idle connection is closed: longer than proxies keep theirs (nginx a minute,
/// Caddy two), so that none sends a request into a connection that is being closed.
const IDLE_TICKS: u32 = 30;

/// Ticks for the head of a request, from its first byte.
const HEAD_TICKS: u32 = 4;

/// Ticks for a client to take what was written.
const WRITE_TICKS: u32 = 6;

/// The head of a request, in bytes. The gate refuses with a problem below it; above it hyper does
/// without one.
const HEAD_MAX: usize = 64 * 1024;

/// Serves one connection to its end; once `stopping`, to the end of what is under way.
pub(super) async fn hold<S>(
    stream: S,
    peer: Option<Peer>,
    router: Router,
    tick: Duration,
    stopping: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let doing = Arc::new(Doing::default());
    let line = TokioIo::new(Line::new(stream, Arc::clone(&doing), tick));
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        doing.busy();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let (answer, doing) = (router.call(request), Arc::clone(&doing));
        async move {
            let answer = answer.await.unwrap_or_else(|never: Infallible| match never {});
            Ok::<_, Infallible>(answer.map(|body| Told::new(body, doing)))
        }
    });
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_MAX).header_read_timeout(None);
    let mut served = std::pin::pin!(http.serve_connection(line, service));
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = stopping.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// What a connection is doing.
#[derive(Debug, Default)]
struct Doing {
    /// A phase, in the lowest two bits, and how many there were before.
    phase: AtomicU32,
    /// The connection, while its request is under way: hyper does not read again by itself.
    waker: AtomicWaker,
}

const IDLE: u32 = 0;
const HEAD: u32 = 1;
const BUSY: u32 = 2;

impl Doing {
    /// A head was read; its request is under way.
    fn busy(&self) {
        self.turn(BUSY);
    }

    /// The answer was given whole.
    fn idle(&self) {
        self.turn(IDLE);
        self.waker.wake();
    }

    fn turn(&self, phase: u32) {
        let before = self.phase.load(Ordering::Relaxed);
        self.phase.store((before & !3).wrapping_add(4) | phase, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.phase.load(Ordering::Relaxed)
    }
}

/// A connection.
#[derive(Debug)]
struct Line<S> {
    stream: S,
    tick: Duration,
    doing: Arc<Doing>,
    reads: Patience,
    writes: Patience,
}

/// Counts ticks while a client does nothing. Boxed when it is first needed.
#[derive(Debug, Default)]
struct Patience {
    sleep: Option<Pin<Box<Sleep>>>,
    ticks: u32,
    /// The phase that is being counted.
    of: u32,
}

impl Patience {
    /// Completes when `most` ticks of `phase` went by.
    fn poll(&mut self, cx: &mut Context<'_>, tick: Duration, phase: u32, most: u32) -> Poll<Error> {
        if self.of != phase {
            (self.of, self.ticks) = (phase, 0);
        }
        loop {
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(tick)));
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
            self.ticks += 1;
            if self.ticks >= most {
                return Poll::Ready(Error::new(ErrorKind::TimedOut, "the client is too slow"));
            }
        }
    }

    fn rest(&mut self) {
        *self = Self::default();
    }
}

impl<S> Line<S> {
    fn new(stream: S, doing: Arc<Doing>, tick: Duration) -> Self {
        Self { stream, tick, doing, reads: Patience::default(), writes: Patience::default() }
    }

    /// A write that waits for the client waits only so long.
    fn written(&mut self, cx: &mut Context<'_>, done: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if done.is_ready() {
            self.writes.rest();
            return done;
        }
        Poll::Ready(Err(ready!(self.writes.poll(cx, self.tick, 0, WRITE_TICKS))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let line = &mut *self;
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut line.stream).poll_read(cx, buf) {
            if buf.filled().len() > before && line.doing.now() & 3 == IDLE {
                line.doing.turn(HEAD);
            }
            return Poll::Ready(read);
        }
        let phase = line.doing.now();
        let most = match phase & 3 {
            BUSY => {
                line.reads.rest();
                line.doing.waker.register(cx.waker());
                return Poll::Pending;
            }
            HEAD => HEAD_TICKS,
            _ => IDLE_TICKS,
        };
        Poll::Ready(Err(ready!(line.reads.poll(cx, line.tick, phase, most))))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An answer's body. Its connection is idle again once it was written, or given up.
#[derive(Debug)]
struct Told {
    body: Body,
    doing: Arc<Doing>,
}

impl Told {
    fn new(body: Body, doing: Arc<Doing>) -> Self {
        Self { body, doing }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.doing.idle();
    }
}

impl hyper::body::Body for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
