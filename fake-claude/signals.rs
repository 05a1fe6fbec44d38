//! Signals: one thread waits for them and leaves word in the hub.
//!
//! Before the handlers are in place a signal kills the process, as it does the real one in its
//! first half second. Nothing is blocked, so that children start with a clean mask.

use std::sync::Arc;
use std::sync::mpsc::channel;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::hub::Stop;
use crate::session::Session;

/// Puts the handlers in place.
pub(crate) fn watch(s: &Arc<Session>) {
    let s = Arc::clone(s);
    let (ready, wait) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async move {
            let (Ok(mut int), Ok(mut term), Ok(mut hup)) = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::terminate()),
                signal(SignalKind::hangup()),
            ) else {
                return;
            };
            let _ = ready.send(());
            loop {
                let (name, stop) = next(&mut int, &mut term, &mut hup).await;
                if !s.quirks.ignores(name) {
                    // The first one decides: TERM after INT changes nothing.
                    s.hub
                        .tell(|state| state.stop.get_or_insert(stop).exit_code());
                }
            }
        });
    });
    if wait.recv().is_err() {
        crate::strict("cannot handle signals");
    }
}

async fn next(int: &mut Signal, term: &mut Signal, hup: &mut Signal) -> (&'static str, Stop) {
    tokio::select! {
        _ = int.recv() => ("INT", Stop::Int),
        _ = term.recv() => ("TERM", Stop::Term),
        _ = hup.recv() => ("HUP", Stop::Hup),
    }
}
