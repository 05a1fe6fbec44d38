//! The door: the Unix socket that a claude listens on, and that never answers.
//!
//! - Whoever listens is asked of the kernel (SO_PEERCRED) for every frame: a path says nothing.
//! - Nothing here waits in the way of the heartbeat: connecting does not block, writing has a
//!   limit. A frame that was cut off has no line feed, and is dropped by the other side.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::platform::process::Identity;

/// How long the other side may take to read a frame.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a door; whose, it tells.
#[derive(Debug)]
pub struct Door {
    stream: OwnedFd,
}

/// Why a door cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shut {
    /// There is nothing at the path, or nobody listens there.
    Gone,
    /// Too many wait before it.
    Crowded,
    /// Somebody else listens: a process with this pid.
    Stranger(i32),
    /// What the system said.
    Broken(Errno),
}

impl Shut {
    /// In words.
    #[must_use]
    pub fn text(&self, path: &Path) -> String {
        let shown = path.display();
        match self {
            Self::Gone => format!("nobody listens at the session's door {shown}"),
            Self::Crowded => format!("the session's door {shown} takes no connection right now"),
            Self::Stranger(pid) => {
                format!("the listener at {shown} is process {pid}, not the session's claude")
            }
            Self::Broken(errno) => {
                format!("cannot reach the session's door {shown}: {}", errno.desc())
            }
        }
    }
}

impl Door {
    /// Connects to whoever listens.
    ///
    /// # Errors
    /// When nobody does.
    pub fn connect(path: &Path) -> Result<Self, Shut> {
        let address = UnixAddr::new(path).map_err(Shut::Broken)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let stream =
            socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(Shut::Broken)?;
        connect(stream.as_raw_fd(), &address).map_err(|errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => Shut::Gone,
            Errno::EAGAIN => Shut::Crowded,
            other => Shut::Broken(other),
        })?;
        Ok(Self { stream })
    }

    /// Makes sure that `owner` listens, and still lives.
    ///
    /// # Errors
    /// When it is somebody else.
    pub fn belongs_to(&self, owner: &Identity) -> Result<(), Shut> {
        let listener = getsockopt(&self.stream, PeerCredentials).map_err(Shut::Broken)?;
        let own_user = listener.uid() == nix::unistd::geteuid().as_raw();
        if listener.pid() == owner.pid && own_user && owner.lives() {
            return Ok(());
        }
        Err(Shut::Stranger(listener.pid()))
    }

    /// Writes the frames, and closes the connection.
    ///
    /// # Errors
    /// When the other side closes it, or does not read within five seconds.
    pub async fn write(self, frames: Vec<u8>) -> io::Result<()> {
        let stream = std::os::unix::net::UnixStream::from(self.stream);
        let mut stream = UnixStream::from_std(stream)?;
        let write = async {
            stream.write_all(&frames).await?;
            stream.shutdown().await
        };
        match tokio::time::timeout(PATIENCE, write).await {
            Ok(written) => written,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    fn open(path: &Path, owner: &Identity) -> Result<Door, Shut> {
        let door = Door::connect(path)?;
        door.belongs_to(owner).map(|()| door)
    }

    #[test]
    fn a_frame_reaches_the_owner_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door.sock");
        let own = Identity::own().unwrap();
        assert_eq!(open(&path, &own).unwrap_err(), Shut::Gone);
        let listener = UnixListener::bind(&path).unwrap();
        let door = open(&path, &own).unwrap();
        runtime().block_on(door.write(b"frame\n".to_vec())).unwrap();
        let mut text = String::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "frame\n");
        let pid = own.pid;
        let others = [
            Identity {
                pid: own.pid + 1,
                ..own.clone()
            },
            // The owner's pid, but not the owner any more.
            Identity {
                proc_start: "1".to_owned(),
                ..own
            },
        ];
        for other in others {
            assert_eq!(open(&path, &other).unwrap_err(), Shut::Stranger(pid));
        }
        drop(listener);
        let own = Identity::own().unwrap();
        assert_eq!(open(&path, &own).unwrap_err(), Shut::Gone);
    }

    #[test]
    fn what_is_no_socket_or_too_long_a_path_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let own = Identity::own().unwrap();
        let long = folder.path().join("x".repeat(120));
        let paths = [folder.path().to_owned(), long];
        for path in paths {
            let shut = open(&path, &own).unwrap_err();
            assert!(
                shut.text(&path).contains(&path.display().to_string()),
                "{shut:?}"
            );
        }
    }

    #[test]
    fn a_door_that_nobody_answers_is_crowded_and_does_not_hang() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door.sock");
        let own = Identity::own().unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let mut held = Vec::new();
        let shut = loop {
            match open(&path, &own) {
                Ok(door) => held.push(door),
                Err(shut) => break shut,
            }
        };
        assert_eq!(shut, Shut::Crowded);
    }
}
