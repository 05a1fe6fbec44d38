//! The signals that ask oo itself to stop, as one stream.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request to stop that arrived as a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// What service managers and `kill` send.
    Terminate,
    /// The terminal is gone.
    Hangup,
    /// Ctrl-\.
    Quit,
}

impl StopSignal {
    /// The signal's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Quit => "SIGQUIT",
        }
    }
}

/// The stream; while it lives, none of these signals ends the program.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    quit: Signal,
}

impl StopSignals {
    /// Begins to listen. A SIGHUP that the caller ignores (nohup) stays ignored.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if hangup_is_ignored() {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            quit: signal(SignalKind::quit())?,
        })
    }

    /// The next request.
    pub async fn next(&mut self) -> StopSignal {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = hangup => StopSignal::Hangup,
            _ = self.quit.recv() => StopSignal::Quit,
        }
    }
}

/// Bit 0 of `SigIgn` in proc(5): asked of the kernel, so that no handler has to be swapped.
fn hangup_is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .is_some_and(|mask| mask & 1 == 1)
}
