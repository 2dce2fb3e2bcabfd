//! A tunnel whose TLS has to ask for the tunnel's own host: in its first hello, and in a second one
//! where the server wants that. Some servers go by the name in the second.

use std::sync::atomic::{AtomicBool, Ordering};

use relay_sandbox::egress::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

use super::hello::{self, Hello};
use super::pass::{Over, copy, pump};

/// A record's kind, version and length.
const HEADER: usize = 5;

/// Passes on what a client says to `host`, until it ends. `again` is whether the server asks for a
/// second hello, as [`hear`] tells it.
pub(super) async fn reach(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    host: &Host,
    mut again: oneshot::Receiver<bool>,
    moved: &AtomicBool,
) -> Result<(), Over> {
    let Some(behind) = look(from, to, host, moved).await? else {
        return pump(from, to, moved).await;
    };
    let (mut from, mut asked) = (behind.chain(from), None);
    loop {
        let mut header = Vec::with_capacity(HEADER);
        (&mut from).take(HEADER as u64).read_to_end(&mut header).await?;
        let mut record = header.chain(&mut from);
        asked = asked.or_else(|| again.try_recv().ok());
        match header[..] {
            [] => return Ok(to.shutdown().await?),
            // What may stand in front of a second hello: data that is early, and signs.
            [0x14 | 0x15 | 0x17, _, _, high, low] if asked != Some(false) => {
                let length = u64::from(u16::from_be_bytes([high, low]));
                copy(&mut record, to, HEADER as u64 + length, moved).await?;
                continue;
            }
            _ => {}
        }
        let asks = match asked {
            Some(asks) => asks,
            None => (&mut again).await.map_err(|_| Over::Gone)?,
        };
        if !asks {
            return pump(&mut record, to, moved).await;
        }
        let behind = look(&mut record, to, host, moved).await?.unwrap_or_default();
        return pump(&mut behind.chain(record), to, moved).await;
    }
}

/// Passes on what a server begins with, and tells whether that asks for a second hello.
pub(super) async fn hear(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    tell: oneshot::Sender<bool>,
    moved: &AtomicBool,
) -> Result<(), Over> {
    let mut said = Vec::with_capacity(4096);
    loop {
        let before = said.len();
        let n = from.read_buf(&mut said).await?;
        moved.store(true, Ordering::Relaxed);
        let asks = hello::asks_again(&said);
        to.write_all(&said[before..]).await?;
        match asks {
            None if n > 0 && said.len() < hello::LONGEST => {}
            asks => {
                let _ended = tell.send(asks.unwrap_or_default());
                return Ok(());
            }
        }
    }
}

/// Holds back what a client begins with until it is known whom it asks for. Gives what came behind
/// its hello; none where that is no TLS.
async fn look(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    host: &Host,
    moved: &AtomicBool,
) -> Result<Option<Vec<u8>>, Over> {
    let mut said = Vec::with_capacity(4096);
    loop {
        let n = from.take(hello::LONGEST as u64).read_buf(&mut said).await?;
        moved.store(true, Ordering::Relaxed);
        let refused = |why: &str| Err(Over::Refused(why.to_owned()));
        let end = match hello::read(&said) {
            Hello::Unfinished if n > 0 => continue,
            // It has ended before it was clear.
            Hello::Unfinished if said.len() > 1 => return Err(Over::Gone),
            Hello::Unfinished | Hello::Other => None,
            Hello::Unclear => return refused("its TLS cannot be read"),
            Hello::Tls(None, _) => return refused("its TLS names no host"),
            Hello::Tls(Some(name), end) => match Host::parse(&name) {
                Some(asked) if asked == *host => Some(end),
                Some(asked) => return refused(&format!("its TLS asks for {asked} instead")),
                None => return refused("its TLS asks for another host"),
            },
        };
        let behind = said.split_off(end.unwrap_or(said.len()));
        to.write_all(&said).await?;
        return Ok(end.map(|_| behind));
    }
}
