//! The loop around a doorman: it waits for the next event, and does what the doorman says.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;

use super::rpc;
use super::stdio::Connection;
use super::{Doorman, Event, Leave};
use crate::error::{Error, Result};
use crate::platform::environment::Environment;
use crate::platform::pidfd::PidFd;
use crate::platform::runtime;
use crate::platform::signals::StopSignals;
use crate::platform::watch::{Watch, Watched};
use crate::store::Lock;

/// How long answers that are on their way are waited for when the input has ended.
const FLUSH: Duration = Duration::from_millis(100);

/// How often files are looked at where the kernel has no watch left to give.
const WITHOUT_WATCH: Duration = Duration::from_secs(1);

/// The stack of the thread that waits for a lock.
const STACK: usize = 64 * 1024;

/// Serves claude over stdin and stdout until it is time to leave. The exit code is 0.
///
/// # Errors
/// When the process cannot get what a server needs: threads, signals, a runtime.
pub fn serve(environment: &Environment) -> Result<u8> {
    let fail = |e: io::Error| Error::failed(format!("cannot start the doorman: {e}"));
    runtime::on_this_thread().map_err(fail)?.block_on(async {
        let mut stop = StopSignals::listen().map_err(fail)?;
        let parent = nix::unistd::getppid().as_raw();
        let handle = PidFd::open(parent);
        let connection = Connection::stdio().map_err(fail)?;
        let ended = async {
            // It may have ended before the handle was there, and another have its pid.
            if nix::unistd::getppid().as_raw() != parent {
                return;
            }
            let told = match &handle {
                Ok(handle) => handle.ended().await.is_ok(),
                Err(_) => false,
            };
            // Where a parent cannot be watched (one in another pid namespace), the end of the
            // input has to tell; that must not look like a death.
            if !told {
                std::future::pending::<()>().await;
            }
        };
        let mut doorman = Doorman::new(environment, parent);
        attend(&mut doorman, Some(connection), ended, &mut stop).await;
        Ok(0)
    })
}

/// The loop; without a connection nobody speaks to it.
pub(super) async fn attend(
    doorman: &mut Doorman,
    mut connection: Option<Connection>,
    parent_ended: impl Future<Output = ()>,
    stop: &mut StopSignals,
) {
    tokio::pin!(parent_ended);
    let mut watches = Watches::new();
    let mut writing: Option<Pin<Box<dyn Future<Output = io::Result<()>>>>> = None;
    let (locks, mut locked) = mpsc::channel(1);
    loop {
        let mut reaction = if watches.follow(&doorman.watched()) {
            // What changed before it was watched.
            doorman.handle(Event::News)
        } else {
            if writing.is_none()
                && let Some((open, frames)) = doorman.offer()
            {
                writing = Some(Box::pin(open.door.write(frames)));
            }
            if let Some(path) = doorman.lock_to_wait_for() {
                wait_for(path, locks.clone());
            }
            let event = next(
                doorman,
                connection.as_mut(),
                parent_ended.as_mut(),
                stop,
                &watches,
                &mut writing,
                &mut locked,
            )
            .await;
            doorman.handle(event)
        };
        let answers = std::mem::take(&mut reaction.answers);
        if let Some(connection) = &connection
            && answers
                .iter()
                .any(|answer| connection.send(rpc::encode(answer)).is_err())
        {
            reaction = doorman.handle(Event::Stop);
        }
        match reaction.leave {
            None => {}
            Some(Leave::AtOnce) => return,
            Some(Leave::WhenWritten) => {
                if let Some(connection) = connection.take() {
                    connection.flush(FLUSH);
                }
                return;
            }
        }
    }
}

/// The next event. In this order: no flood of messages or lines keeps a doorman from leaving, or
/// from its heartbeat.
async fn next(
    doorman: &mut Doorman,
    connection: Option<&mut Connection>,
    parent_ended: Pin<&mut impl Future<Output = ()>>,
    stop: &mut StopSignals,
    watches: &Watches,
    writing: &mut Option<Pin<Box<dyn Future<Output = io::Result<()>>>>>,
    locked: &mut mpsc::Receiver<(PathBuf, Option<Lock>)>,
) -> Event {
    let at = doorman.due();
    let due = async {
        match at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    let written = async {
        match writing.as_mut() {
            Some(write) => write.await,
            None => std::future::pending().await,
        }
    };
    let busy = doorman.busy();
    let news = async {
        if busy {
            // Signals and clocks are only noticed by a runtime that gets its turn.
            tokio::task::yield_now().await;
        } else {
            watches.changed().await;
        }
    };
    let incoming = async {
        match connection {
            Some(connection) => connection.next().await,
            None => std::future::pending().await,
        }
    };
    let event = tokio::select! {
        biased;
        _ = stop.next() => Event::Stop,
        () = parent_ended => Event::ParentEnded,
        () = due => Event::Due,
        result = written => Event::Written(result),
        Some((path, lock)) = locked.recv() => Event::Lock(path, lock),
        incoming = incoming => incoming.map_or(Event::InputEnded, Event::Incoming),
        () = news => Event::News,
    };
    if matches!(event, Event::Written(_)) {
        *writing = None;
    }
    event
}

/// Waits for a lock on a thread of its own: the kernel can tell nobody else that it is free.
fn wait_for(path: PathBuf, locks: mpsc::Sender<(PathBuf, Option<Lock>)>) {
    let failed = (path.clone(), locks.clone());
    let waiting = std::thread::Builder::new()
        .name("standby".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let lock = Lock::wait(&path).ok();
            // Nobody is left to take it when the doorman has left: then it is free again.
            let _ = locks.blocking_send((path, lock));
        });
    if waiting.is_err() {
        let (path, locks) = failed;
        let _ = locks.try_send((path, None));
    }
}

/// The files that are watched.
struct Watches {
    watch: Option<Watch>,
    files: Vec<(PathBuf, Watched)>,
}

impl Watches {
    fn new() -> Self {
        Self {
            watch: Watch::new().ok(),
            files: Vec::new(),
        }
    }

    /// Watches these files and no others. Whether one of them is watched since just now: another
    /// file under the same name is another one.
    fn follow(&mut self, wanted: &[PathBuf]) -> bool {
        let Some(watch) = &self.watch else {
            return false;
        };
        let mut new = false;
        let mut files = Vec::with_capacity(wanted.len());
        for path in wanted {
            // What is not there cannot be watched; whoever wants it looks again in time.
            if let Ok(watched) = watch.add_file(path) {
                new |= !self.files.iter().any(|known| is(known, path, watched));
                files.push((path.clone(), watched));
            }
        }
        for (_, old) in &self.files {
            if !files.iter().any(|(_, watched)| watched == old) {
                watch.remove(*old);
            }
        }
        self.files = files;
        new
    }

    async fn changed(&self) {
        let told = match &self.watch {
            Some(watch) => watch.changed().await.is_ok(),
            None => false,
        };
        if !told {
            tokio::time::sleep(WITHOUT_WATCH).await;
        }
    }
}

fn is((path, watched): &(PathBuf, Watched), other: &Path, by: Watched) -> bool {
    path == other && *watched == by
}
