//! What this process tells the service manager that started it (sd_notify): that it is ready, that
//! it is alive, that it ends. One datagram each, to the socket that NOTIFY_SOCKET names.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

/// The manager's ear.
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    every: Option<Duration>,
    stop: OnceLock<Duration>,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Notifier {
    /// Speaks to `socket`, a path or, with `@` in front, an abstract name of Linux. `watchdog` is
    /// how long the manager waits between two signs of life; three are given in that time.
    ///
    /// # Errors
    /// Where the name is neither, or the system gives no socket.
    pub fn new(socket: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let manager = match socket.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(socket)?,
            [b'@', name @ ..] => abstract_name(name)?,
            _ => return Err(ErrorKind::InvalidInput.into()),
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not listen holds nothing up.
        socket.set_nonblocking(true)?;
        let every = watchdog.map(|time| time / 3);
        Ok(Self { socket, manager, every, stop: OnceLock::new() })
    }

    /// How often it wants to hear that this process is alive.
    #[must_use]
    pub fn every(&self) -> Option<Duration> {
        self.every
    }

    /// It works now, and at what.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", in_line(status)));
    }

    /// It is alive.
    pub fn alive(&self) {
        if self.every.is_some() {
            self.say("WATCHDOG=1");
        }
        self.ask_for_time();
    }

    /// The manager stops it, and it still has something to finish: each sign of life from now on
    /// asks for as much time as the watchdog gives, whatever the unit says of a stop. A stop that
    /// is stuck ends with the last of it.
    pub fn draining(&self) {
        if let Some(every) = self.every {
            self.stop.get_or_init(|| every * 3);
        }
        self.ask_for_time();
    }

    fn ask_for_time(&self) {
        if let Some(time) = self.stop.get() {
            self.say(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
        }
    }

    /// What it does, for a person.
    pub fn status(&self, status: &str) {
        self.say(&format!("STATUS={}", in_line(status)));
    }

    /// It ends. From here on the manager counts the time that a stop may take.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=ending");
    }

    fn say(&self, text: &str) {
        if let Err(error) = self.socket.send_to_addr(text.as_bytes(), &self.manager) {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

/// Each line is a word to the manager, so a status is one line, whoever it names.
fn in_line(status: &str) -> String {
    status.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(target_os = "linux")]
fn abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        // What was said is there at once; what was not is not waited for.
        socket.set_nonblocking(true).unwrap();
        let n = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }

    #[test]
    fn each_word_is_one_datagram_to_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(path.as_os_str(), Some(Duration::from_secs(300))).unwrap();
        assert_eq!(notifier.every(), Some(Duration::from_secs(100)));
        notifier.ready("serving claude");
        notifier.alive();
        notifier.draining();
        notifier.alive();
        notifier.stopping();
        let words: Vec<String> = (0..6).map(|_| heard(&manager)).collect();
        let more_time = "EXTEND_TIMEOUT_USEC=300000000";
        assert_eq!(
            words,
            [
                "READY=1\nSTATUS=serving claude",
                "WATCHDOG=1",
                more_time,
                "WATCHDOG=1",
                more_time,
                "STOPPING=1\nSTATUS=ending"
            ]
        );
        // One that is gone stops nothing.
        drop(manager);
        notifier.alive();
        assert!(Notifier::new(OsStr::new("vsock:2:1"), None).is_err());
    }

    #[test]
    fn a_status_is_one_line_whatever_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(path.as_os_str(), None).unwrap();
        notifier.status("paused by m\x1b]0;x\x07\nMAINPID=1\r\nSTOPPING=1");
        notifier.ready("a\nb");
        assert_eq!(heard(&manager), "STATUS=paused by m ]0;x  MAINPID=1  STOPPING=1");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=a b");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_socket_is_spoken_to_as_well() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("relay-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::new(OsStr::new(&format!("@{name}")), None).unwrap();
        // Nobody asked for signs of life.
        notifier.alive();
        notifier.ready("x");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=x");
    }
}
