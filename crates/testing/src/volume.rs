//! The files in which kubelet shows a pod its label and term.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A downwardAPI volume as kubelet makes it: a link `..data` to the visible version, and links through it.
pub struct Volume {
    pub path: PathBuf,
    versions: usize,
}

impl Volume {
    /// Makes an empty volume. `name` is that of the test.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lictor-volume-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self { path, versions: 0 }
    }

    /// Replaces both files at once, and deletes the earlier version.
    pub fn write(&mut self, role: &str, term: &str) {
        let old = self.path.join("..data").exists().then(|| self.version());
        let new = self.make(role, term);
        self.point_to(&new);
        if let Some(old) = old {
            fs::remove_dir_all(old).unwrap();
        }
    }

    /// Makes a version that is not visible yet.
    pub fn make(&mut self, role: &str, term: &str) -> PathBuf {
        self.versions += 1;
        let version = self.path.join(format!("..2026_11_22_10_00_00.{}", self.versions));
        fs::create_dir(&version).unwrap();
        for (name, content) in [("role", role), ("term", term)] {
            fs::write(version.join(name), content).unwrap();
        }
        version
    }

    /// Makes a version visible.
    pub fn point_to(&self, version: &Path) {
        let link = self.path.join("..data_tmp");
        symlink(version.file_name().unwrap(), &link).unwrap();
        fs::rename(&link, self.path.join("..data")).unwrap();
        for name in ["role", "term"] {
            let _ = symlink(Path::new("..data").join(name), self.path.join(name));
        }
    }

    /// The visible version.
    pub fn version(&self) -> PathBuf {
        self.path.join("..data").canonicalize().unwrap()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
