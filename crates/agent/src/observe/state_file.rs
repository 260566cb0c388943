//! The state file: the knowledge, for programs that do not use HTTP.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

/// Replaces a file by one with this content. A reader sees either the whole old content or the whole new content.
///
/// # Errors
/// If the file can't be written.
pub(super) fn replace(path: &Path, content: &str) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no name"))?.to_string_lossy();
    // In the same directory, because a rename is atomic only within a file system.
    let new = path.with_file_name(format!(".{name}.new"));
    fs::write(&new, content)?;
    fs::rename(&new, path)
}

/// Keeps the file up to date. Deletes it when the sender is gone, because the content would become outdated.
pub(super) async fn keep(path: PathBuf, mut contents: watch::Receiver<String>) {
    let mut fails = false;
    while contents.changed().await.is_ok() {
        let (target, content) = (path.clone(), contents.borrow_and_update().clone());
        match spawn_blocking(move || replace(&target, &content)).await {
            Ok(Ok(())) => fails = false,
            Ok(Err(error)) if !fails => {
                tracing::warn!(file = %path.display(), %error, "the state file can't be written");
                fails = true;
            }
            _ => {}
        }
    }
    if let Err(error) = fs::remove_file(&path) {
        tracing::warn!(file = %path.display(), %error, "the state file can't be deleted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_never_sees_a_part() {
        let directory = std::env::temp_dir().join(format!("lictor-state-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("state.json");
        let contents = ["a".repeat(100_000), "b".repeat(100_000)];
        replace(&path, &contents[0]).unwrap();
        let reader = std::thread::spawn({
            let (path, contents) = (path.clone(), contents.clone());
            move || (0..500).all(|_| contents.contains(&fs::read_to_string(&path).unwrap()))
        });
        for turn in 0..500 {
            replace(&path, &contents[turn % 2]).unwrap();
        }
        assert!(reader.join().unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&directory).unwrap();
        assert!(replace(&path, "").is_err());
    }
}
