//! A pipe into a child: its end of it blocks as any stdin does, ours never.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness;

/// Our end. Nobody inherits it, so the child's end of file comes when this is dropped, and when
/// this process dies.
#[derive(Debug)]
pub struct Writer {
    fd: AsyncFd<OwnedFd>,
}

/// A pipe: the child's end and ours. Both are close-on-exec; a child gets its end as a standard
/// stream.
///
/// # Errors
/// When no pipe can be had, or outside a tokio runtime.
pub fn into_child() -> io::Result<(File, Writer)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    // The flag is of the open end and not of the pipe: the child's end goes on blocking.
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((
        File::from(reader),
        Writer {
            fd: readiness::writable(writer)?,
        },
    ))
}

impl Writer {
    /// Waits until there is room, or nobody reads any more.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub async fn room(&self) -> io::Result<()> {
        self.fd.writable().await?.retain_ready();
        Ok(())
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; `BrokenPipe` when nobody reads any more.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        // The signal that comes with a broken pipe is ignored by every Rust program from its
        // start, and set back in the children it starts.
        self.fd
            .try_io(Interest::WRITABLE, |fd| Ok(nix::unistd::write(fd, bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn it_takes_what_fits_and_says_when_nobody_reads() {
        let (mut reader, writer) = into_child().unwrap();
        writer.room().await.unwrap();
        let bytes = vec![b'x'; 1 << 20];
        let taken = writer.write(&bytes).unwrap();
        assert!(taken < bytes.len());
        let full = writer.write(&bytes).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut read = vec![0; taken];
        reader.read_exact(&mut read).unwrap();
        writer.room().await.unwrap();
        assert_eq!(writer.write(b"y").unwrap(), 1);
        drop(reader);
        // Another test's child may have a copy of the reading end, until its exec.
        let broken = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                writer.room().await.unwrap();
                match writer.write(b"z") {
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => break e,
                    Ok(_) | Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        let broken = broken.await.expect("nobody reads any more");
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }
}
