//! Writing files so that a reader sees the old one or the new one, whole, and nothing else.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};

/// The mode of every file of oo's.
const MODE: u32 = 0o600;

/// Creates a file (0600) that must not exist yet, with `content`.
///
/// It is not synced: the files of a new run become durable after claude was let go, and their
/// names with `process.json`.
///
/// # Errors
/// When it exists or cannot be written; then it is not left half-written.
pub fn create_private(path: &Path, content: &[u8]) -> Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
        .map_err(|e| Error::io("create", path, e))?;
    if let Err(e) = file.write_all(content) {
        // The file is ours and incomplete.
        let _ = std::fs::remove_file(path);
        return Err(Error::io("write", path, e));
    }
    Ok(file)
}

/// Creates an empty file (0600) that must not exist yet and to which a child will append.
///
/// # Errors
/// When it exists or cannot be created.
pub fn create_appending(path: &Path) -> Result<File> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
        .map_err(|e| Error::io("create", path, e))
}

/// Opens a file for reading. A link is not followed, and a pipe is not waited for.
///
/// # Errors
/// When it is not there, is a link, or cannot be opened.
pub fn open_to_read(path: &Path) -> Result<File> {
    open_itself(OpenOptions::new().read(true), path)
}

/// Reads a whole file of ours. What is no file is not waited for: a pipe in its place is an error.
///
/// # Errors
/// As the system tells it; anything but a regular file is [`io::ErrorKind::Other`].
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file for reading; links are followed.
///
/// # Errors
/// As [`read_file`].
pub fn regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Opens a file for reading and appending. A link is not followed, and a pipe is not waited for.
///
/// # Errors
/// When it is not there, is a link, or cannot be opened.
pub fn open_to_append(path: &Path) -> Result<File> {
    open_itself(OpenOptions::new().read(true).append(true), path)
}

fn open_itself(options: &mut OpenOptions, path: &Path) -> Result<File> {
    options
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
        .map_err(|e| Error::io("open", path, e))
}

/// Makes the content of a file durable, and its name.
///
/// # Errors
/// When the disk says no.
pub fn sync(path: &Path) -> Result<()> {
    open_to_read(path)?
        .sync_data()
        .map_err(|e| Error::io("sync", path, e))?;
    sync_folder(folder_of(path))
}

/// Replaces a file atomically and durably.
///
/// # Errors
/// When it cannot be written; then the old content stays.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    write_beside(path, true, |file| file.write_all(content))?;
    sync_folder(folder_of(path))
}

/// Replaces a file atomically, without asking the disk: for what a reboot makes worthless.
///
/// # Errors
/// When it cannot be written; then the old content stays.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> Result<()> {
    write_beside(path, false, |file| file.write_all(content))
}

/// Replaces a file by a JSON document with a line feed behind it; see [`replace`]. The text is
/// written as it is made: an answer in it may have many MiB.
///
/// # Errors
/// As [`replace`].
pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write_beside(path, true, |file| {
        let mut out = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut out, value)?;
        out.write_all(b"\n")?;
        out.flush()
    })?;
    sync_folder(folder_of(path))
}

/// A file's JSON document.
///
/// # Errors
/// Not found when it is not there; failed, with path and position, when it cannot be read or parsed.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = read_file(path).map_err(|e| {
        let kind = match e.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Failed,
        };
        Error::io("read", path, e).with_kind(kind)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::failed(format!("cannot parse {}: {e}", path.display())))
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|e| Error::io("sync", folder, e))
}

fn write_beside(
    path: &Path,
    durable: bool,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<()> {
    let written = || -> io::Result<()> {
        // tempfile creates it 0600 and takes it away again if anything below fails.
        let mut beside = tempfile::Builder::new()
            .prefix(".oo-")
            .tempfile_in(folder_of(path))?;
        write(beside.as_file_mut())?;
        if durable {
            beside.as_file().sync_data()?;
        }
        beside.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    written().map_err(|e| Error::io("write", path, e))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
