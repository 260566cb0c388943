//! What all groups share: servers, programs, a directory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use lictor_testing::file;

use crate::world::World;

pub struct Ground {
    pub world: World,
    /// The API server's address, without the scheme.
    pub server: String,
    pub elector: PathBuf,
    pub scheduler: PathBuf,
    pub directory: PathBuf,
}

impl Ground {
    /// Starts the servers of a part of the benchmark.
    pub async fn start(part: &str) -> anyhow::Result<Self> {
        // What is missing is told before anything is started.
        let (elector, scheduler) = (tool("elector")?, tool("kube-scheduler")?);
        let world = World::start(part).await?;
        let directory = std::env::temp_dir().join(format!("lictor-bench-{part}-groups-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let server = world.server()?;
        Ok(Self { world, server, elector, scheduler, directory })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn tool(name: &str) -> anyhow::Result<PathBuf> {
    let found = Command::new(file("hack/tools.sh")).arg(name).output()?;
    let told = String::from_utf8_lossy(&found.stderr);
    ensure!(found.status.success(), "hack/tools.sh {name} failed: {}", told.trim());
    Ok(String::from_utf8(found.stdout)?.trim().into())
}
