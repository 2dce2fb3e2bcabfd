//! From a destination that is on the list to a connection: looked up once, and connected to the
//! very addresses that were looked at. A name that leads into the house is not followed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use relay_sandbox::egress::{AddressKind, Destination, Grant, Host, kind_of};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Boxed;
use super::head;
use super::outward::Beyond;

/// Addresses of one host that are tried.
const TRIED: usize = 6;
/// How long one address may take, so that a second is tried.
const ONE: Duration = Duration::from_secs(7);
/// How long a name is looked up where a proxy beyond would do it: in such networks this machine
/// often cannot.
const BEFORE_BEYOND: Duration = Duration::from_secs(3);

/// What looks up hosts.
pub trait Names: Send + Sync {
    /// The addresses of `host`.
    ///
    /// # Errors
    /// Where there is no such host, or nobody who knows.
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's lookup.
#[derive(Clone, Copy, Debug)]
pub struct SystemNames;

impl Names for SystemNames {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The host leads where no lane goes.
    Shut(AddressKind),
    /// There is nobody, or nobody answers.
    Away(String),
}

/// A connection, and what of it is spoken to.
pub(super) struct Line {
    pub(super) stream: TcpStream,
    /// Whether a request in the clear is said to a proxy beyond.
    pub(super) beyond: bool,
    /// What the other end has said by then.
    pub(super) said: Vec<u8>,
}

/// Connects. `tunnel` says whether the two ends will speak for themselves.
pub(super) async fn connect(
    names: &dyn Names,
    beyond: Option<&Beyond>,
    to: &Destination,
    grant: Grant,
    tunnel: bool,
) -> Result<Line, NoWay> {
    let beyond = beyond.filter(|beyond| !beyond.leaves_out(&to.host));
    let looking = look_up(names, to);
    let found = match beyond {
        None => looking.await,
        Some(_) => tokio::time::timeout(BEFORE_BEYOND, looking)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    };
    let open = match (found, beyond) {
        (Ok(found), _) => open(&found, grant)?,
        // Whoever stands beyond knows more names.
        (Err(_), Some(_)) => Vec::new(),
        (Err(error), None) => return Err(NoWay::Away(lookup_words(&error))),
    };
    let in_the_house = open.iter().any(|a| kind_of(a.ip()) != AddressKind::Public);
    match beyond.filter(|_| !in_the_house) {
        None => Ok(Line { stream: dial(&open).await?, beyond: false, said: Vec::new() }),
        Some(beyond) => through(names, beyond, to, tunnel).await,
    }
}

async fn look_up(names: &dyn Names, to: &Destination) -> io::Result<Vec<SocketAddr>> {
    match &to.host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, to.port)]),
        Host::Name(name) => names.look_up(name, to.port).await,
    }
}

/// Those of a host's addresses that it may be reached at.
fn open(found: &[SocketAddr], grant: Grant) -> Result<Vec<SocketAddr>, NoWay> {
    let may = |address: &&SocketAddr| match (grant, kind_of(address.ip())) {
        (_, AddressKind::Public) | (Grant::Address, _) => true,
        (Grant::House, kind) => kind.is_a_house(),
        (Grant::Public, _) => false,
    };
    let open: Vec<SocketAddr> = found.iter().filter(may).copied().collect();
    match (open.is_empty(), found.first()) {
        (true, Some(shut)) => Err(NoWay::Shut(kind_of(shut.ip()))),
        (true, None) => Err(NoWay::Away("it has no address".to_owned())),
        (false, _) => Ok(open),
    }
}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, NoWay> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(TRIED) {
        match tokio::time::timeout(ONE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _only_slower = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(NoWay::Away(dial_words(&last)))
}

/// Goes through the proxy of this machine, which the operator chose: it may stand anywhere.
async fn through(
    names: &dyn Names,
    beyond: &Beyond,
    to: &Destination,
    tunnel: bool,
) -> Result<Line, NoWay> {
    let away = |why: &str| NoWay::Away(format!("this machine's proxy {why}"));
    let found = match beyond.host.parse() {
        Ok(address) => Ok(vec![SocketAddr::new(address, beyond.port)]),
        Err(_) => names.look_up(&beyond.host, beyond.port).await,
    };
    let found = found.map_err(|_| away("is not found"))?;
    let mut stream = dial(&found).await.map_err(|_| away("does not answer"))?;
    let mut said = Vec::new();
    if tunnel {
        let mut ask = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        if let Some(login) = &beyond.login {
            ask.push_str(&format!("Proxy-Authorization: {}\r\n", login.expose()));
        }
        ask.push_str("\r\n");
        stream.write_all(ask.as_bytes()).await.map_err(|_| away("does not answer"))?;
        let (answer, rest) = head::read(&mut stream).await.map_err(|_| away("does not answer"))?;
        let status =
            String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned();
        if status != "200" {
            let status: String = status.chars().filter(char::is_ascii_digit).take(3).collect();
            return Err(away(&format!("refuses with {status}")));
        }
        said = rest;
    }
    Ok(Line { stream, beyond: true, said })
}

fn lookup_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "its name was not found in time".to_owned(),
        _ => "there is no such host, or nobody to ask for it".to_owned(),
    }
}

fn dial_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        kind => format!("it is not reached: {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_house_are_left_out_unless_the_operator_named_them() {
        let at = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|ip| SocketAddr::new(ip.parse().unwrap(), 443)).collect()
        };
        let count = |text: &str, grant| open(&at(text), grant).map(|open| open.len());
        let shut = |kind| Err(NoWay::Shut(kind));
        assert_eq!(count("1.1.1.1 2606:4700::1111", Grant::Public), Ok(2));
        assert_eq!(count("1.1.1.1 10.0.0.1 ::1", Grant::Public), Ok(1));
        assert_eq!(count("10.0.0.1", Grant::Public), shut(AddressKind::Private));
        assert_eq!(count("::ffff:127.0.0.1", Grant::Public), shut(AddressKind::Loopback));
        assert_eq!(count("169.254.169.254", Grant::Public), shut(AddressKind::LinkLocal));
        assert_eq!(count("10.0.0.1 127.0.0.1", Grant::House), Ok(2));
        assert_eq!(count("169.254.169.254", Grant::House), shut(AddressKind::LinkLocal));
        assert_eq!(count("168.63.129.16", Grant::House), shut(AddressKind::Metadata));
        assert_eq!(count("169.254.169.254", Grant::Address), Ok(1));
        assert!(matches!(open(&[], Grant::Public), Err(NoWay::Away(_))));
    }
}
