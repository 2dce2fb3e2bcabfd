//! The owner's unix socket: for this user's processes alone, by the folder, by the file and by
//! the caller's user id.

use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::line::hold;

/// The socket's name in the home.
const SOCKET: &str = "relay.sock";

/// The longest path every system's `sockaddr_un` takes: macOS has 104 bytes with the final zero.
const PATH_MAX: usize = 103;

/// How often the owner looks whether its socket is still in the home: less than half of what a
/// command waits for an owner that does not answer.
const LOOK: Duration = Duration::from_secs(4);

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    home: PathBuf,
    listener: UnixListener,
    /// It is missing, could not be bound again, and that was told.
    lost: bool,
    /// How many connections of other processes are open.
    guests: Arc<watch::Sender<usize>>,
}

/// Where a home's socket is, whether or not anybody listens.
pub(super) fn path_in(home: &Path) -> PathBuf {
    home.join(SOCKET)
}

/// Connects to a home's socket: whether anybody serves it.
pub(super) async fn reach(path: &Path) -> Result<UnixStream> {
    let (short, _folder) = bindable(path, path.parent().unwrap_or(Path::new("/")))?;
    UnixStream::connect(short).await
}

impl Socket {
    /// Binds the home's socket. Only the holder of the home's lock may: a socket that is there
    /// already was left by an owner that died.
    pub(super) fn bind(home: &Path) -> Result<Self> {
        let path = path_in(home);
        match path.symlink_metadata() {
            Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(&path)?,
            Ok(_) => return Err(Error::new(ErrorKind::AlreadyExists, "it is not a socket")),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let listener = listen(home, &path)?;
        let guests = Arc::new(watch::Sender::new(0));
        Ok(Self { home: home.to_owned(), listener, lost: false, guests })
    }

    /// Binds the socket again where somebody removed it: nobody would reach an owner that lives and
    /// holds the lock. Connections that are open stay so.
    fn stay(&mut self) {
        let path = path_in(&self.home);
        if !path.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return;
        }
        match listen(&self.home, &path) {
            Ok(listener) => {
                (self.listener, self.lost) = (listener, false);
                tracing::warn!(path = %path.display(), "the socket was removed; it is back");
            }
            Err(error) => {
                if !std::mem::replace(&mut self.lost, true) {
                    tracing::warn!(path = %path.display(), %error, "the socket was removed");
                }
            }
        }
    }

    /// How many connections other processes have open.
    pub(super) fn guests(&self) -> watch::Receiver<usize> {
        self.guests.subscribe()
    }
}

fn listen(home: &Path, path: &Path) -> Result<UnixListener> {
    // Nobody else can enter the folder, so nobody connects before the mode is set.
    let (short, _folder) = bindable(path, home)?;
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A path that `bind` takes: a long one is reached through its opened folder.
fn bindable(path: &Path, home: &Path) -> Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    if !cfg!(target_os = "linux") {
        let text = format!("the path is longer than {PATH_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidFilename, text));
    }
    let folder = File::open(home)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(SOCKET), Some(folder)))
}

/// Serves until the owner is closing, then lets what is under way go on to its end.
pub(super) async fn serve(
    mut socket: Socket,
    router: Router,
    tick: Duration,
    closing: CancellationToken,
) {
    let mut lines = JoinSet::new();
    loop {
        let (stream, guest) = tokio::select! {
            accepted = socket.accept() => accepted,
            Some(_) = lines.join_next() => continue,
            () = closing.cancelled() => break,
        };
        let (router, closing) = (router.clone(), closing.clone());
        lines.spawn(async move {
            hold(stream, None, router, tick, closing).await;
            drop(guest);
        });
    }
    drop(socket);
    while lines.join_next().await.is_some() {}
}

impl Socket {
    /// The next connection; of another process, with its place among the guests.
    async fn accept(&mut self) -> (UnixStream, Option<Guest>) {
        loop {
            let Ok(accepted) = tokio::time::timeout(LOOK, self.listener.accept()).await else {
                self.stay();
                continue;
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Some(admitted) = self.admit(stream) {
                        return admitted;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    // Out of file descriptors, most likely: others have to be closed first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Takes connections of this user and of root; drops the others without a word.
    fn admit(&self, stream: UnixStream) -> Option<(UnixStream, Option<Guest>)> {
        let peer = stream.peer_cred().ok()?;
        let ours = rustix::process::geteuid().as_raw();
        if peer.uid() != ours && peer.uid() != 0 {
            tracing::warn!(uid = peer.uid(), "another user's connection was refused");
            return None;
        }
        let own = i32::try_from(std::process::id()).ok();
        let guest = (peer.pid() != own).then(|| Guest::enter(&self.guests));
        Some((stream, guest))
    }
}

/// Counts a connection of another process while it is open.
#[derive(Debug)]
struct Guest(Arc<watch::Sender<usize>>);

impl Guest {
    fn enter(guests: &Arc<watch::Sender<usize>>) -> Self {
        guests.send_modify(|n| *n += 1);
        Self(Arc::clone(guests))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n = n.saturating_sub(1));
    }
}
