//! The documentation's site: mdBook makes it from the pages that README.md lists, and [`links`] judges each of its pages.
//!
//! The pages keep their places, so a link between two of them works as it does in the repository.

pub mod links;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use links::Site;

const BOOK: &str = include_str!("../site/book.toml");
const STYLE: &str = include_str!("../site/style.css");

/// The section of README.md whose table is the map of the site: a row for each part, with links to its pages.
const MAP: &str = "\n## All pages\n";

/// Where the repository and its releases are on the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The repository.
    pub source: String,
    /// Its files, as they were when the site was made. There is no slash at the end. Links to files that are no pages lead there.
    pub files: String,
    /// The host and path of the registry that has the chart. The site's commands name it in place of `$REGISTRY`.
    pub registry: Option<String>,
}

impl Addresses {
    /// Takes the addresses that `hack/addresses.sh` prints, and that of the documents, if a release names one.
    ///
    /// # Errors
    /// If `documents` is not the directory docs of a repository.
    pub fn new(source: String, documents: Option<&str>, registry: Option<String>) -> anyhow::Result<Self> {
        let files = match documents {
            Some(address) => address
                .strip_suffix("/docs")
                .with_context(|| format!("DOCUMENTS does not end with /docs: {address}"))?,
            None => &format!("{source}/blob/HEAD"),
        };
        Ok(Self { files: files.to_owned(), source, registry })
    }

    /// Returns a page with the registry's own address.
    fn filled(&self, page: String) -> String {
        match &self.registry {
            Some(registry) => page.replace("oci://$REGISTRY/", &format!("oci://{registry}/")),
            None => page,
        }
    }
}

/// Builds the site in `target/site` of the repository, and returns the number of its pages. An older site is removed first.
///
/// # Errors
/// If mdBook fails, or a link of a page leads nowhere. Then there is no site.
pub fn build(root: &Path, mdbook: &Path, addresses: &Addresses) -> anyhow::Result<usize> {
    let (site, work) = (root.join("target/site"), root.join("target/site-work"));
    for directory in [&site, &work] {
        if directory.exists() {
            std::fs::remove_dir_all(directory)?;
        }
    }
    let pages = prepare(root, &work, addresses)?;
    let made = work.join("made");
    let mut command = Command::new(mdbook);
    // Its other messages only say that it works.
    command.arg("build").arg("--dest-dir").arg(&made).arg(&work).env("MDBOOK_LOG", "warn").env_remove("RUST_LOG");
    let status = command.status().with_context(|| format!("{} can't be started", mdbook.display()))?;
    ensure!(status.success(), "{} failed: {status}", mdbook.display());
    judge(root, &made, &pages, addresses)?;
    std::fs::rename(&made, &site)?;
    std::fs::remove_dir_all(&work)?;
    Ok(pages.len())
}

/// Writes what mdBook reads, and returns the pages by their paths in the repository, each with its path on the site.
fn prepare(root: &Path, work: &Path, addresses: &Addresses) -> anyhow::Result<BTreeMap<String, String>> {
    let readme = read(root, "README.md")?;
    let map = map(&readme)?;
    let mut summary = vec!["# Summary\n\n[lictor](README.md)\n".to_owned()];
    let mut pages = BTreeMap::from([("README.md".to_owned(), "index.html".to_owned())]);
    for (part, files) in &map {
        summary.push(format!("\n# {part}\n\n"));
        for file in files {
            let page = file.strip_suffix(".md").with_context(|| format!("README.md, \"All pages\", has {file}"))?;
            let is_new = pages.insert(file.clone(), format!("{page}.html")).is_none();
            ensure!(is_new, "README.md, \"All pages\", has {file} twice");
            let text = read(root, file)?;
            summary.push(format!("- [{}]({file})\n", title(&text).with_context(|| file.clone())?));
        }
    }
    let write = |path: &str, text: &str| {
        let path = work.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(work))?;
        std::fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
    };
    write("book.toml", &BOOK.replace("{source}", &addresses.source))?;
    write("style.css", STYLE)?;
    write("theme/favicon.svg", &read(root, "charts/lictor/icon.svg")?)?;
    write("src/SUMMARY.md", &summary.concat())?;
    for file in pages.keys() {
        write(&format!("src/{file}"), &addresses.filled(read(root, file)?))?;
    }
    std::fs::create_dir_all(work.join("src/docs/pictures"))?;
    for picture in std::fs::read_dir(root.join("docs/pictures"))? {
        let path = picture?.path();
        if matches!(path.extension().and_then(OsStr::to_str), Some("svg" | "png")) {
            let name = path.file_name().unwrap_or_default();
            std::fs::copy(&path, work.join("src/docs/pictures").join(name))?;
        }
    }
    Ok(pages)
}

/// The parts of the site, each with its pages.
fn map(readme: &str) -> anyhow::Result<Vec<(&str, Vec<String>)>> {
    let (_, section) = readme.split_once(MAP).context("README.md has no section \"All pages\"")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let parts: Vec<_> = rows
        .skip(1)
        .map(|(part, links)| {
            let files = links.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            (part, files.map(str::to_owned).collect())
        })
        .collect();
    ensure!(!parts.is_empty(), "README.md, \"All pages\", has no table");
    Ok(parts)
}

fn title(page: &str) -> anyhow::Result<&str> {
    page.lines().next().and_then(|line| line.strip_prefix("# ")).context("the first line is no title")
}

/// Judges the links of all that was made, and lets those to other files of the repository lead there.
fn judge(root: &Path, made: &Path, pages: &BTreeMap<String, String>, addresses: &Addresses) -> anyhow::Result<()> {
    let mut site = Site::new(root, pages, &addresses.files);
    let (mut texts, mut waiting) = (BTreeMap::new(), vec![made.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for path in entries(&directory)? {
            let name = path.strip_prefix(made)?.to_string_lossy().into_owned();
            match path.extension().and_then(OsStr::to_str) {
                _ if path.is_dir() => waiting.push(path),
                Some("html" | "css") => {
                    let text = read(made, &name)?;
                    site.add(&name, &text);
                    texts.insert(name, text);
                }
                _ => site.add(&name, ""),
            }
        }
    }
    let mut wrong = Vec::new();
    for (name, text) in &texts {
        if Path::new(name).extension().is_some_and(|kind| kind == "css") {
            wrong.extend(links::from_elsewhere(text).map(|url| format!("{name} loads {url} from elsewhere")));
            continue;
        }
        match site.judge(name, text) {
            Ok(judged) => std::fs::write(made.join(name), breakable(&judged))?,
            Err(problems) => wrong.extend(problems),
        }
    }
    // mdBook writes a picture twice: in the page, and to look at it closely.
    wrong.dedup();
    if !wrong.is_empty() {
        bail!("there is no site, because of its links:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// Lets a path of fields or files at the beginning of a table's cell be broken within, so that fewer tables are too wide.
fn breakable(page: &str) -> String {
    let mut cells = page.split("<td><code>");
    let mut broken = cells.next().unwrap_or_default().to_owned();
    for cell in cells {
        let (path, rest) = cell.split_once("</code>").unwrap_or((cell, ""));
        broken.extend(["<td><code>", &path.replace('.', ".<wbr>").replace('/', "/<wbr>"), "</code>", rest]);
    }
    broken
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
}

fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("{path} can't be read"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_table_of_the_readme_is_the_map() {
        let readme = "# x\n\n## All pages\n\n| part | pages |\n|---|---|\n| Start | [a](docs/a.md) · [b, and c](B.md) |\n\
                      | Operate | [d](docs/d.md) |\n\n## License\n\n| no | [e](e.md) |\n";
        let expected =
            [("Start", vec!["docs/a.md".to_owned(), "B.md".to_owned()]), ("Operate", vec!["docs/d.md".to_owned()])];
        assert_eq!(map(readme).unwrap(), expected);
        assert!(map("# x\n").is_err());
        assert!(map("# x\n\n## All pages\n\nnone\n").is_err());
    }

    #[test]
    fn a_path_in_a_cell_can_be_broken() {
        let page = "<p><code>a.b</code></p><td><code>a.b/c</code>, <code>d.e</code></td><td>f.g</td>";
        let broken = "<p><code>a.b</code></p><td><code>a.<wbr>b/<wbr>c</code>, <code>d.e</code></td><td>f.g</td>";
        assert_eq!(breakable(page), broken);
    }

    #[test]
    fn a_release_says_where_the_files_are() {
        let addresses = |documents| Addresses::new("https://forge.example/a".to_owned(), documents, None);
        assert_eq!(addresses(None).unwrap().files, "https://forge.example/a/blob/HEAD");
        let release = addresses(Some("https://forge.example/a/blob/v1/docs")).unwrap();
        assert_eq!((&*release.source, &*release.files), ("https://forge.example/a", "https://forge.example/a/blob/v1"));
        assert!(addresses(Some("https://forge.example/site")).is_err());
    }

    #[test]
    fn commands_name_the_registry_if_it_is_known() {
        let page = "helm install lictor oci://$REGISTRY/charts/lictor, or your own $REGISTRY/lictor";
        let filled = |registry: Option<&str>| {
            let addresses = Addresses::new("https://forge.example/a".to_owned(), None, registry.map(str::to_owned));
            addresses.unwrap().filled(page.to_owned())
        };
        assert_eq!(filled(None), page);
        let known = "helm install lictor oci://images.example/a/charts/lictor, or your own $REGISTRY/lictor";
        assert_eq!(filled(Some("images.example/a")), known);
    }
}
