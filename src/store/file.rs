//! Writing files so that a reader sees the old one or the new one, whole, and nothing else.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Kind, Result};

/// The mode of every file of oo's.
const MODE: u32 = 0o600;

/// Creates a file (0600) that must not exist yet, with `content`.
///
/// It is not synced: a new run's files become durable together, by one [`sync_folder`] and the
/// synced `process.json` that ends the preparation.
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

/// Replaces a file atomically and durably.
///
/// # Errors
/// When it cannot be written; then the old content stays.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    write_beside(path, content, true)?;
    sync_folder(folder_of(path))
}

/// Replaces a file atomically, without asking the disk: for what a reboot makes worthless.
///
/// # Errors
/// When it cannot be written; then the old content stays.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> Result<()> {
    write_beside(path, content, false)
}

/// Replaces a file by a JSON document with a line feed behind it; see [`replace`].
///
/// # Errors
/// As [`replace`].
pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    replace(path, &json_document(path, value)?)
}

/// A file's JSON document.
///
/// # Errors
/// Not found when it is not there; failed, with path and position, when it cannot be read or parsed.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(|e| {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Failed,
        };
        Error::io("read", path, e).with_kind(kind)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::failed(format!("cannot parse {}: {e}", path.display())))
}

/// Makes the names in a folder durable.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|e| Error::io("sync", folder, e))
}

fn json_document<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::failed(format!("cannot encode {}: {e}", path.display())))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn write_beside(path: &Path, content: &[u8], durable: bool) -> Result<()> {
    let written = || -> std::io::Result<()> {
        // tempfile creates it 0600 and takes it away again if anything below fails.
        let mut beside = tempfile::Builder::new()
            .prefix(".oo-")
            .tempfile_in(folder_of(path))?;
        beside.write_all(content)?;
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
