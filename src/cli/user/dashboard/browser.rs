//! Opens the page in the user's browser.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::guard::random;

/// A file that redirects the browser to the page. The address itself is never an argument of a program, because all
/// users of the machine can see those; only this user can read the file. Dropping this deletes the file.
pub(super) struct OpenedFile(PathBuf);

impl OpenedFile {
    /// Opens the address. Says so if there is no browser.
    pub(super) fn open(address: &str) -> Option<Self> {
        let opened = Self::write(address).and_then(|file| {
            open::that_detached(&file.0).context("the system has no program for HTML files")?;
            Ok(file)
        });
        opened.inspect_err(|error| eprintln!("can't open a browser, so open the address yourself: {error:#}")).ok()
    }

    fn write(address: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("lictor-dashboard-{}.html", random()?));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).with_context(|| format!("can't write {}", path.display()))?;
        let written = Self(path);
        let page = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; \
             url={address}\"><title>Elections</title>\n<a href=\"{address}\">Elections</a>\n"
        );
        file.write_all(page.as_bytes()).context("can't write the file that redirects the browser to the page")?;
        Ok(written)
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_leads_to_the_page_and_only_its_owner_may_read_it() {
        let file = OpenedFile::write("http://127.0.0.1:8001/token/").unwrap();
        let path = file.0.clone();
        assert!(std::fs::read_to_string(&path).unwrap().contains("url=http://127.0.0.1:8001/token/\""));
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        drop(file);
        assert!(!path.exists());
    }
}
