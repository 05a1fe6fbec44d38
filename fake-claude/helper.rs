//! Processes that need a session of their own.
//!
//! The program runs itself with a hidden first word, calls setsid and becomes something else:
//! that needs no code between fork and exec.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The first word of a helper's command line.
const WORD: &str = "--fake-claude-helper";

/// Plays the helper if the command line asks for one.
pub(crate) fn main(words: &[String]) -> Option<ExitCode> {
    if words.first().map(String::as_str) != Some(WORD) {
        return None;
    }
    let _ = nix::unistd::setsid();
    let kind = words.get(1).map(String::as_str);
    let argument = words.get(2).map_or("", String::as_str);
    match kind {
        Some("bash") => {
            let error = Command::new("/bin/bash").arg("-c").arg(argument).exec();
            eprintln!("fake-claude: cannot run /bin/bash: {error}");
            Some(ExitCode::from(127))
        }
        Some("orphan") => {
            // The child of a child: when this one is gone, nobody waits for it.
            let _ = command("hold", argument).spawn();
            Some(ExitCode::SUCCESS)
        }
        Some("hold") => {
            std::thread::sleep(Duration::from_millis(argument.parse().unwrap_or(0)));
            Some(ExitCode::SUCCESS)
        }
        _ => Some(ExitCode::from(70)),
    }
}

/// A command that runs this program as a helper.
pub(crate) fn command(kind: &str, argument: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fake-claude").args([WORD, kind, argument]);
    command
}

/// Leaves a process behind that holds stdout and stderr.
pub(crate) fn orphan(ms: u64) {
    let ms = ms.to_string();
    if let Ok(mut child) = command("orphan", &ms).stdin(Stdio::null()).spawn() {
        let _ = child.wait();
    }
}
