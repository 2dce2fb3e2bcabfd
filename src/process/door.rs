//! The door in the box: `relay __door SOCKET PROGRAM ARGS…` runs in the network namespace of the
//! run, where nobody but the run is, and becomes the program.
//!
//! Before that it listens on the namespace's loopback and hands the listening socket itself to the
//! worker. A socket stays in the namespace it was made in, so that the worker answers there, from
//! outside, and nothing of relay's is left in the box that a lane could end or that had to be ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
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

/// The exit code of a door that could not be opened, as of other wrappers.
const NO_DOOR: u8 = 125;

/// How long the worker may take to take over.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the worker says once the door is its own.
const TAKEN: u8 = b'.';

/// The longest path that `bind` and `connect` take.
const PATH_MAX: usize = 100;

/// Opens the door and becomes the program.
#[must_use]
pub fn door_main(args: &[OsString]) -> ExitCode {
    let [socket, program, args @ ..] = args else { return ExitCode::from(NO_DOOR) };
    let opened = TcpListener::bind((Ipv4Addr::LOCALHOST, DOOR_PORT))
        .and_then(|door| hand_over(Path::new(socket), &door));
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

/// Gives `door` to whoever listens at `socket`, and waits until it was taken.
///
/// # Errors
/// Where nobody is there or takes it.
pub fn hand_over(socket: &Path, door: &TcpListener) -> io::Result<()> {
    let (path, _folder) = short(socket)?;
    let mut worker = UnixStream::connect(path)?;
    worker.set_read_timeout(Some(PATIENCE))?;
    let fds = [door.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
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

/// Takes the door over from what stands in the box.
///
/// # Errors
/// Where whoever connected hands over no socket.
pub async fn take_over(from: &tokio::net::UnixStream) -> io::Result<tokio::net::TcpListener> {
    let door = from.async_io(tokio::io::Interest::READABLE, || receive(from)).await?;
    let door = TcpListener::from(door);
    // Whatever came is a socket that listens on a loopback, or it is not used.
    if !door.local_addr()?.ip().is_loopback() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    door.set_nonblocking(true)?;
    let door = tokio::net::TcpListener::from_std(door)?;
    from.async_io(tokio::io::Interest::WRITABLE, || Ok(rustix::io::write(from, &[TAKEN])?)).await?;
    Ok(door)
}

/// No program that the worker starts meanwhile gets the socket. Elsewhere there is no box, and so no
/// door.
#[cfg(target_os = "linux")]
const RECEIVED: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVED: RecvFlags = RecvFlags::empty();

fn receive(from: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    let mut said = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [IoSliceMut::new(&mut said)];
    recvmsg(from, &mut text, &mut control, RECEIVED)?;
    let mut received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    received.next().ok_or_else(|| io::ErrorKind::InvalidData.into())
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
        take_over(&meeting.accept().await?.0).await
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
