//! Signals: one thread waits for them and leaves word in the hub.

use std::sync::Arc;

use nix::sys::signal::{SigSet, Signal};

use crate::hub::Stop;
use crate::session::Session;

/// The signals that the program handles; blocked in every thread, waited for in one.
fn set() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGHUP);
    set
}

/// From here on a signal no longer kills the process. To be called before threads are started.
pub(crate) fn block() {
    if let Err(e) = set().thread_block() {
        crate::strict(&format!("cannot block signals: {e}"));
    }
}

/// Starts the thread.
pub(crate) fn watch(s: &Arc<Session>) {
    let s = Arc::clone(s);
    std::thread::spawn(move || {
        while let Ok(signal) = set().wait() {
            let (name, stop) = match signal {
                Signal::SIGINT => ("INT", Stop::Int),
                Signal::SIGHUP => ("HUP", Stop::Hup),
                _ => ("TERM", Stop::Term),
            };
            if !s.quirks.ignores(name) {
                // The first one decides: TERM after INT changes nothing.
                s.hub
                    .tell(|state| state.stop.get_or_insert(stop).exit_code());
            }
        }
    });
}
