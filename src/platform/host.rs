//! Who and where we are: user, host name, this program's own file, this boot.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// `user@host`, the name under which records show who acted.
#[must_use]
pub fn user_at_host() -> String {
    let uid = nix::unistd::geteuid();
    let user = match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        // An id without an entry is still an identity.
        Ok(None) | Err(_) => uid.to_string(),
    };
    let host = nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_else(|_| "localhost".to_owned());
    format!("{user}@{host}")
}

/// `user@host pid N`: who runs this process.
#[must_use]
pub fn caller() -> String {
    format!("{} pid {}", user_at_host(), nix::unistd::getpid())
}

/// The absolute path of this program.
///
/// # Errors
/// When the kernel does not tell it, or the file has been deleted under the running program.
pub fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe()
        .map_err(|e| Error::io("resolve", Path::new("/proc/self/exe"), e))?;
    if path.exists() {
        return Ok(path);
    }
    Err(
        Error::refused(format!("this program's file is gone: {}", path.display()))
            .hint("it was replaced while it ran: start again with the new one"),
    )
}

/// Whether the file system of a folder has no room left for anything to speak of.
#[must_use]
pub fn is_full(folder: &Path) -> bool {
    const ROOM: u64 = 64 * 1024;
    nix::sys::statvfs::statvfs(folder).is_ok_and(|stat| {
        let room = stat.blocks_available().saturating_mul(stat.fragment_size());
        // A file system without a count of files says 0 of 0.
        room < ROOM || (stat.files() > 0 && stat.files_available() == 0)
    })
}

/// The kernel's random id of this boot, from `/proc/sys/kernel/random/boot_id`.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// The machine's own id, from `/etc/machine-id` or where D-Bus keeps it.
#[must_use]
pub fn machine_id() -> Option<String> {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .find_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|id| !id.is_empty())
        })
}
