//! The door in the box: `relay __door SOCKET NAMED PROGRAM ARGS…` runs in the network namespace of
//! the run, where nobody but the run is, and becomes the program.
//!
//! Before that it listens on the namespace's loopback and hands the listening socket itself to the
//! worker. A socket stays in the namespace it was made in, so that the worker answers there, from
//! outside, and nothing of relay's is left in the box that a lane could end or that had to be ended.
//!
//! NAMED is the number of further doors, each for one host: a program that asks no proxy connects to
//! that host's own port at [`named_address`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The hidden subcommand that the program's `main` looks for before anything else.
pub const DOOR: &str = "__door";

/// The one that asks at the door for a host that nobody has, and prints the answer's first line.
pub const KNOCK: &str = "__knock";

/// Where the door listens on the loopback of the run. Fixed, since in a namespace of the run's own
/// it is free: outside of what the system gives out by itself, and nobody's by habit.
pub const DOOR_PORT: u16 = 18_123;

/// The most named doors of a run.
pub const MOST_NAMED: usize = 8;

/// The port of a named door: that of a host itself, since its program connects to no other.
const NAMED_PORT: u16 = 443;

/// The exit code of a door that could not be opened, as of other wrappers.
const NO_DOOR: u8 = 125;

/// How long the worker may take to take over.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the worker says once the door is its own.
const TAKEN: u8 = b'.';

/// The longest path that `bind` and `connect` take.
const PATH_MAX: usize = 100;

/// Where the named door `at` listens on the loopback of the run; the first is 0.
#[must_use]
pub fn named_address(at: u8) -> SocketAddrV4 {
    // 127.0.1.1 is the machine's own name on Debian.
    SocketAddrV4::new(Ipv4Addr::new(127, 0, 1, at.saturating_add(2)), NAMED_PORT)
}

/// Opens the door and becomes the program.
#[must_use]
pub fn door_main(args: &[OsString]) -> ExitCode {
    let [socket, named, program, args @ ..] = args else { return ExitCode::from(NO_DOOR) };
    let opened = open(named).and_then(|doors| hand_over(Path::new(socket), &doors));
    let error = match opened {
        Ok(()) => {
            #[expect(clippy::disallowed_methods, reason = "this is the room that spawns")]
            let mut program = std::process::Command::new(program);
            // Comes back only where it fails.
            program.args(args).exec()
        }
        Err(error) => error,
    };
    // Standard error is the program's own; the worker keeps its end.
    let said = format!("relay: the door of the box: {error}\n");
    let _ = io::stderr().write_all(said.as_bytes());
    ExitCode::from(NO_DOOR)
}

/// All doors of a run, and then no right to open one: where it took a capability to listen on a low
/// port, the program does not inherit it.
fn open(named: &OsStr) -> io::Result<Vec<TcpListener>> {
    let named: u8 =
        named.to_str().and_then(|n| n.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut doors = vec![TcpListener::bind((Ipv4Addr::LOCALHOST, DOOR_PORT))?];
    for at in 0..named {
        doors.push(TcpListener::bind(named_address(at))?);
    }
    #[cfg(target_os = "linux")]
    leave_no_right()?;
    Ok(doors)
}

/// Who is no root keeps no capability as it becomes another program but those of these two sets.
#[cfg(target_os = "linux")]
fn leave_no_right() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    rustix::thread::clear_ambient_capability_set()?;
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { inheritable, ..rustix::thread::capabilities(None)? };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// In the box: whether somebody answers at the door.
#[must_use]
pub fn knock_main() -> ExitCode {
    let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, DOOR_PORT)).and_then(|mut door| {
        door.set_read_timeout(Some(PATIENCE))?;
        door.write_all(b"CONNECT nobody.relay.invalid:443 HTTP/1.1\r\n\r\n")?;
        let mut answer = String::new();
        door.read_to_string(&mut answer)?;
        Ok(answer)
    });
    let (line, code) = match &asked {
        Ok(answer) => (answer.lines().next().unwrap_or_default().to_owned(), ExitCode::SUCCESS),
        Err(error) => (error.to_string(), ExitCode::FAILURE),
    };
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
    code
}

/// Gives `doors` to whoever listens at `socket`, and waits until they were taken.
///
/// # Errors
/// Where nobody is there or takes them.
pub fn hand_over(socket: &Path, doors: &[TcpListener]) -> io::Result<()> {
    let (path, _folder) = short(socket)?;
    let mut worker = UnixStream::connect(path)?;
    worker.set_read_timeout(Some(PATIENCE))?;
    let fds: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_NAMED + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // No signal comes of a worker that is gone: Rust's start has the one of broken pipes ignored.
    sendmsg(&worker, &[IoSlice::new(&[TAKEN])], &mut control, SendFlags::empty())?;
    let mut said = [0];
    worker.read_exact(&mut said)
}

/// Where a run's door is met: a socket that is listened on from the time it is made.
///
/// # Errors
/// Where it cannot be made.
pub fn meet(socket: &Path) -> io::Result<UnixListener> {
    let (path, _folder) = short(socket)?;
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes the doors over from what stands in the box, the one to the proxy first.
///
/// # Errors
/// Where whoever connected hands over no sockets.
pub async fn take_over(from: &tokio::net::UnixStream) -> io::Result<Vec<tokio::net::TcpListener>> {
    let doors = from.async_io(tokio::io::Interest::READABLE, || receive(from)).await?;
    let doors = doors.into_iter().map(taken).collect::<io::Result<Vec<_>>>()?;
    if doors.is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    from.async_io(tokio::io::Interest::WRITABLE, || Ok(rustix::io::write(from, &[TAKEN])?)).await?;
    Ok(doors)
}

/// Whatever came is a socket that listens on a loopback, or it is not used.
fn taken(door: OwnedFd) -> io::Result<tokio::net::TcpListener> {
    let door = TcpListener::from(door);
    if !door.local_addr()?.ip().is_loopback() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    door.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(door)
}

/// No program that the worker starts meanwhile gets the socket. Elsewhere there is no box, and so no
/// door.
#[cfg(target_os = "linux")]
const RECEIVED: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVED: RecvFlags = RecvFlags::empty();

fn receive(from: &tokio::net::UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut said = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_NAMED + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [IoSliceMut::new(&mut said)];
    recvmsg(from, &mut text, &mut control, RECEIVED)?;
    let received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(received.flatten().collect())
}

/// A path that the system takes: a long one is reached through its opened folder.
fn short(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if path.as_os_str().len() <= PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let folder = File::open(folder)?;
    Ok((Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name), Some(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// In a door's place: connects and hands over `fd`, or nothing.
    fn knock(socket: &Path, fd: Option<OwnedFd>) -> UnixStream {
        let (path, _folder) = short(socket).unwrap();
        let worker = UnixStream::connect(path).unwrap();
        let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&worker, &[IoSlice::new(b".")], &mut control, SendFlags::NOSIGNAL).unwrap();
        worker
    }

    async fn taken(socket: &Path, fd: Option<OwnedFd>) -> io::Result<tokio::net::TcpListener> {
        let meeting = tokio::net::UnixListener::from_std(meet(socket)?)?;
        let _knocking = knock(socket, fd);
        Ok(take_over(&meeting.accept().await?.0).await?.remove(0))
    }

    #[tokio::test]
    async fn all_doors_come_over_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let inside = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let inside: Vec<_> = (0..=MOST_NAMED).map(inside).collect();
        let at: Vec<_> = inside.iter().map(|door| door.local_addr().unwrap()).collect();
        let meeting = tokio::net::UnixListener::from_std(meet(&socket).unwrap()).unwrap();
        let handing = tokio::task::spawn_blocking(move || hand_over(&socket, &inside));
        let doors = take_over(&meeting.accept().await.unwrap().0).await.unwrap();
        handing.await.unwrap().unwrap();
        let taken: Vec<_> = doors.iter().map(|door| door.local_addr().unwrap()).collect();
        assert_eq!(taken, at);
    }

    #[tokio::test]
    async fn a_socket_that_listens_comes_over_and_answers_where_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let folder = dir.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let inside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = inside.local_addr().unwrap();
        let door = taken(&folder.join("s"), Some(inside.into())).await.unwrap();
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut server, _) = door.accept().await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let mut said = [0; 5];
        server.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hello");
    }

    #[tokio::test]
    async fn what_is_no_door_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::open("/dev/null").unwrap().into();
        assert!(taken(&dir.path().join("a"), Some(file)).await.is_err());
        assert!(taken(&dir.path().join("b"), None).await.is_err());
        let open = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().into();
        assert!(taken(&dir.path().join("c"), Some(open)).await.is_err());
    }
}
