//! What is passed on between a client and where it was led, and what of the client's is not.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relay_sandbox::egress::Host;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::head::Body;
use super::reach::{hear, reach};

/// What is read, and thrown away, of a client behind its one request.
const BEHIND: u64 = 256 << 10;
/// The line in front of a piece of a body.
const SIZE_LINE: u64 = 256;
/// Lines behind the last piece, in bytes.
const TRAILERS: u64 = 8 << 10;

/// What a client may say.
#[derive(Clone, Copy, Debug)]
pub(super) enum May<'a> {
    /// Whatever it likes.
    Anything,
    /// TLS that asks for this host, or no TLS.
    Reach(&'a Host),
    /// One body and no more: a second request was not looked at.
    Send(Body),
}

/// Why what a client says goes no further.
pub(super) enum Over {
    /// It, or the server, is gone.
    Gone,
    /// It is not what it may say.
    Refused(String),
}

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Passes on both ways, until the server has ended or nothing came for too long. `begun` is what the
/// client has said already.
///
/// # Errors
/// Why the client was cut off.
pub(super) async fn pass(
    client: &mut TcpStream,
    server: &mut TcpStream,
    begun: &[u8],
    may: May<'_>,
    idle: Duration,
) -> Result<(), String> {
    let moved = AtomicBool::new(false);
    let (from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut from_client = begun.chain(from_client);
    let (tell, again) = oneshot::channel();
    let there = async {
        match may {
            May::Anything => {}
            May::Reach(host) => {
                return reach(&mut from_client, &mut to_server, host, again, &moved).await;
            }
            May::Send(body) => {
                return send(&mut from_client, &mut to_server, body, &moved).await;
            }
        }
        pump(&mut from_client, &mut to_server, &moved).await
    };
    let mut back = std::pin::pin!(async {
        if let May::Reach(_) = may {
            hear(&mut from_server, &mut to_client, tell, &moved).await?;
        }
        pump(&mut from_server, &mut to_client, &moved).await
    });
    // A client that has said all waits for the answer; a server that has is done with.
    let both = async {
        tokio::select! {
            _ = &mut back => Ok(()),
            said = there => match said {
                Ok(()) => { let _ended = back.await; Ok(()) }
                Err(Over::Gone) => Ok(()),
                Err(Over::Refused(why)) => Err(why),
            },
        }
    };
    let silence = async {
        loop {
            tokio::time::sleep(idle).await;
            if !moved.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    };
    tokio::select! {
        ended = both => ended,
        () = silence => Ok(()),
    }
}

/// Passes on one body. What comes behind it is thrown away: with `Connection: close` said, a second
/// request is not answered here.
async fn send(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    body: Body,
    moved: &AtomicBool,
) -> Result<(), Over> {
    let mut from = BufReader::new(from);
    match body {
        Body::Length(length) => copy(&mut from, to, length, moved).await?,
        Body::Chunked => chunks(&mut from, to, moved).await?,
    }
    let mut behind = from.take(BEHIND);
    tokio::io::copy(&mut behind, &mut tokio::io::sink()).await?;
    if behind.limit() == 0 {
        // It never stops; the answer ends it.
        return std::future::pending().await;
    }
    Ok(to.shutdown().await?)
}

/// A body in pieces, each said anew, so that whoever reads it finds the end where it was found here.
async fn chunks(
    from: &mut (impl AsyncBufReadExt + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicBool,
) -> Result<(), Over> {
    let broken = || Over::Refused("the body of its request cannot be read".to_owned());
    loop {
        let line = line(from, SIZE_LINE).await?.ok_or_else(broken)?;
        let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(size.trim_ascii_end()).map_err(|_| broken())?;
        let is_hex = size.len() <= 8 && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = Some(size).filter(|_| is_hex).map(|size| u64::from_str_radix(size, 16));
        let Some(Ok(size)) = size else { return Err(broken()) };
        if size == 0 {
            break;
        }
        to.write_all(format!("{size:x}\r\n").as_bytes()).await?;
        copy(from, to, size, moved).await?;
        if self::line(from, 2).await?.as_deref() != Some(b"") {
            return Err(broken());
        }
        to.write_all(b"\r\n").await?;
    }
    let mut left = TRAILERS;
    loop {
        let line = line(from, left).await?.ok_or_else(broken)?;
        if line.is_empty() {
            return Ok(to.write_all(b"0\r\n\r\n").await?);
        }
        left = left.saturating_sub(line.len() as u64 + 2);
    }
}

/// A line without its end (CR LF, nothing else); none where there is no such within `longest`.
async fn line(
    from: &mut (impl AsyncBufReadExt + Unpin),
    longest: u64,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(longest).read_until(b'\n', &mut line).await?;
    let line = line.strip_suffix(b"\r\n").filter(|line| !line.contains(&b'\r'));
    Ok(line.map(<[u8]>::to_vec))
}

/// Passes on so many bytes.
pub(super) async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    length: u64,
    moved: &AtomicBool,
) -> Result<(), Over> {
    let (mut left, mut piece) = (length, vec![0; 16 << 10]);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = from.read(&mut piece[..most]).await?;
        if n == 0 {
            return Err(Over::Gone);
        }
        moved.store(true, Ordering::Relaxed);
        to.write_all(&piece[..n]).await?;
        left -= n as u64;
    }
    Ok(())
}

/// Passes on all that comes.
pub(super) async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicBool,
) -> Result<(), Over> {
    let mut piece = vec![0; 16 << 10];
    loop {
        let n = from.read(&mut piece).await?;
        if n == 0 {
            return Ok(to.shutdown().await?);
        }
        moved.store(true, Ordering::Relaxed);
        to.write_all(&piece[..n]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sent(said: &str, body: Body) -> String {
        let mut to = Vec::new();
        let sent = send(&mut said.as_bytes(), &mut to, body, &AtomicBool::new(false)).await;
        let to = String::from_utf8(to).unwrap();
        match sent {
            Ok(()) => to,
            Err(Over::Gone) => format!("{to}: gone"),
            Err(Over::Refused(why)) => format!("{to}: {why}"),
        }
    }

    #[tokio::test]
    async fn one_body_is_sent_and_nothing_behind_it() {
        assert_eq!(sent("abcGET http://b/ HTTP/1.1", Body::Length(3)).await, "abc");
        assert_eq!(sent("GET http://b/ HTTP/1.1", Body::Length(0)).await, "");
        assert_eq!(sent("ab", Body::Length(3)).await, "ab: gone");
        let pieces = "3;x=y\r\nabc\r\n0A \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET ";
        assert_eq!(sent(pieces, Body::Chunked).await, "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n");
        let broken = ": the body of its request cannot be read";
        for pieces in
            ["x\r\n", "\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", "1\na", "1\rx\r\n", "123456789\r\n"]
        {
            assert_eq!(sent(pieces, Body::Chunked).await, broken, "{pieces:?}");
        }
        let endless = sent(&"1".repeat(1000), Body::Chunked).await;
        assert_eq!(endless, broken);
        assert_eq!(sent("1\r\nab\r\n", Body::Chunked).await, format!("1\r\na{broken}"));
    }
}
