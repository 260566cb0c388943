//! Where the links of a page lead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The files of a site, and the repository that they come from.
#[derive(Debug)]
pub struct Site<'a> {
    root: &'a Path,
    /// By the path in the repository.
    pages: &'a BTreeMap<String, String>,
    /// The address of the repository's files.
    files: &'a str,
    /// The anchors of each file, by its path on the site.
    anchors: BTreeMap<String, BTreeSet<String>>,
}

/// An attribute of a tag, and where its value is.
struct Attribute<'a> {
    tag: &'a str,
    name: &'a str,
    value: &'a str,
    start: usize,
}

enum Target {
    /// As it is written.
    Good,
    Elsewhere(String),
    Nowhere(&'static str),
}

impl<'a> Site<'a> {
    /// Returns a site without files.
    pub const fn new(root: &'a Path, pages: &'a BTreeMap<String, String>, files: &'a str) -> Self {
        Self { root, pages, files, anchors: BTreeMap::new() }
    }

    /// Adds a file. The text is that of a page, and empty for others.
    pub fn add(&mut self, name: &str, text: &str) {
        let ids = attributes(text).into_iter().filter(|attribute| attribute.name == "id");
        self.anchors.insert(name.to_owned(), ids.map(|id| plain(id.value)).collect());
    }

    /// Returns a page whose links to other files of the repository lead there.
    ///
    /// # Errors
    /// The links that lead nowhere, and what the page would load from other sites.
    pub fn judge(&self, page: &str, text: &str) -> Result<String, Vec<String>> {
        let (mut judged, mut done, mut wrong) = (String::new(), 0, Vec::new());
        for Attribute { tag, name, value, start } in attributes(text) {
            let loads = name == "src" || (tag == "link" && name == "href");
            if !loads && name != "href" {
                continue;
            }
            match self.target(page, &plain(value), loads) {
                Target::Good => {}
                Target::Elsewhere(link) => {
                    judged.push_str(&text[done..start]);
                    judged.push_str(&link.replace('&', "&amp;"));
                    done = start + value.len();
                }
                Target::Nowhere(why) => wrong.push(format!("{page}: {value} {why}")),
            }
        }
        if wrong.is_empty() { Ok(judged + &text[done..]) } else { Err(wrong) }
    }

    fn target(&self, page: &str, link: &str, loads: bool) -> Target {
        if has_scheme(link) {
            return if loads && !link.starts_with("data:") {
                Target::Nowhere("is loaded from elsewhere")
            } else {
                Target::Good
            };
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let Some(path) = (if path.is_empty() { Some(page.to_owned()) } else { join(page, path) }) else {
            return Target::Nowhere("is outside of the repository");
        };
        if let Some(anchors) = self.anchors.get(&path) {
            let is_there = anchor.is_empty() || anchors.contains(anchor);
            return if is_there { Target::Good } else { Target::Nowhere("has no such heading") };
        }
        // mdBook takes every Markdown file for a page, and calls README.md index.html.
        let file = match path.strip_suffix(".html") {
            Some(name) if self.root.join(format!("{name}.md")).exists() => format!("{name}.md"),
            _ => path,
        };
        if let Some(name) = self.pages.get(&file) {
            let up = "../".repeat(page.matches('/').count());
            let hash = if anchor.is_empty() { "" } else { "#" };
            return match self.anchors.get(name) {
                Some(anchors) if anchor.is_empty() || anchors.contains(anchor) => {
                    Target::Elsewhere(format!("{up}{name}{hash}{anchor}"))
                }
                _ => Target::Nowhere("has no such heading"),
            };
        }
        match link.split_once('#') {
            _ if loads => Target::Nowhere("is not on the site"),
            _ if !self.root.join(&file).exists() => Target::Nowhere("leads nowhere"),
            Some((_, anchor)) => Target::Elsewhere(format!("{}/{file}#{anchor}", self.files)),
            None => Target::Elsewhere(format!("{}/{file}", self.files)),
        }
    }
}

/// What a style sheet loads from other sites.
pub fn from_elsewhere(style: &str) -> impl Iterator<Item = &str> {
    let urls = ["url(", "@import "].into_iter().flat_map(move |before| style.split(before).skip(1));
    let urls = urls.map(|rest| rest.trim_start_matches(['"', '\'']).split([')', '"', '\'', ';']).next().unwrap_or(""));
    urls.filter(|url| has_scheme(url) && !url.starts_with("data:"))
}

/// Returns whether an address says by itself where it leads: `https://…`, `mailto:…`, `//…`.
fn has_scheme(address: &str) -> bool {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_one =
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_one || address.starts_with("//")
}

/// The path of a link in the file `from`, if it is below the same directory as this one.
fn join(from: &str, link: &str) -> Option<String> {
    if link.starts_with('/') {
        return None;
    }
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in link.split('?').next()?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The value of an attribute, without escapes.
fn plain(value: &str) -> String {
    value.replace("&quot;", "\"").replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The attributes of all tags that have a value between quotation marks, as mdBook writes them.
fn attributes(html: &str) -> Vec<Attribute<'_>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = html[at..].find('<').map(|found| at + found) {
        if html[start..].starts_with("<!--") {
            at = html[start..].find("-->").map_or(html.len(), |end| start + end);
            continue;
        }
        let tag = word(&html[start + 1..]);
        at = start + 1 + tag.len();
        if tag.is_empty() {
            continue;
        }
        while let Some(c) = html[at..].chars().next().filter(|c| *c != '>') {
            let name = word(&html[at..]);
            if name.is_empty() {
                at += c.len_utf8();
                continue;
            }
            at += name.len();
            let Some(quote) = ["=\"", "='"].into_iter().find(|quote| html[at..].starts_with(quote)) else { continue };
            at += quote.len();
            let value = html[at..].split(&quote[1..]).next().unwrap_or_default();
            found.push(Attribute { tag, name, value, start: at });
            at = (at + value.len() + 1).min(html.len());
        }
        if matches!(tag, "script" | "style") {
            at = html[at..].find(&format!("</{tag}")).map_or(html.len(), |end| at + end + 2);
        }
    }
    found
}

/// The name at the beginning.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | ':' | '_'));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn judged(text: &str) -> Result<String, Vec<String>> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let pages = [("README.md", "index.html"), ("docs/faq.md", "docs/faq.html")];
        let pages = pages.map(|(file, page)| (file.to_owned(), page.to_owned())).into();
        let mut site = Site::new(root, &pages, "https://forge.example/blob/v1");
        site.add("index.html", "<h2 id=\"quick-start\">Quick start</h2>");
        site.add("docs/faq.html", text);
        site.add("docs/pictures/demo.svg", "");
        site.judge("docs/faq.html", text)
    }

    #[test]
    fn a_link_on_the_site_is_kept() {
        let text = "<h2 id='one &amp; two'>x</h2><a href=\"#one &amp; two\">1</a> < <a class=header href=\"faq.html\">2</a>\
                    <a href=\"../index.html#quick-start\">3</a><img src=\"pictures/demo.svg\" alt=\"a > b\">\
                    <a href=\"https://kubernetes.io/x.html\">4</a><a href=\"mailto:a@b\">5</a><!-- <a href=\"no\"> -->\
                    <script>\"<a href='no'>\"</script><img src=\"data:image/png;base64,AA\"><code>&lt;a href=\"no\"</code>";
        assert_eq!(judged(text).unwrap(), text);
    }

    #[test]
    fn a_link_to_another_file_leads_to_the_repository() {
        for (link, file) in [
            ("../examples/service", "https://forge.example/blob/v1/examples/service"),
            ("../examples/know/go/leader.go#L3", "https://forge.example/blob/v1/examples/know/go/leader.go#L3"),
            // So mdBook writes it.
            ("../charts/lictor/README.html", "https://forge.example/blob/v1/charts/lictor/README.md"),
            ("../README.html", "../index.html"),
            ("../README.html#quick-start", "../index.html#quick-start"),
        ] {
            let page = |link| format!("<p>before</p><a href=\"{link}\">x</a><p>after</p>");
            assert_eq!(judged(&page(link)).unwrap(), page(file));
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_problem() {
        for (tag, problem) in [
            ("<a href=\"#none\">", "#none has no such heading"),
            ("<a href='../index.html#none'>", "../index.html#none has no such heading"),
            ("<a href=\"../README.html#none\">", "../README.html#none has no such heading"),
            ("<a href=\"none.html\">", "none.html leads nowhere"),
            ("<a href=\"../examples/none\">", "../examples/none leads nowhere"),
            ("<a href=\"../../lictor/README.md\">", "../../lictor/README.md is outside of the repository"),
            ("<a href=\"/docs/faq.html\">", "/docs/faq.html is outside of the repository"),
            ("<img src=\"pictures/none.svg\">", "pictures/none.svg is not on the site"),
            ("<img src=\"../charts/lictor/icon.svg\">", "../charts/lictor/icon.svg is not on the site"),
            ("<script src=\"https://cdn.example/x.js\">", "https://cdn.example/x.js is loaded from elsewhere"),
            ("<link href=\"//cdn.example/x.css\">", "//cdn.example/x.css is loaded from elsewhere"),
        ] {
            assert_eq!(judged(tag).unwrap_err(), [format!("docs/faq.html: {problem}")], "{tag}");
        }
    }

    #[test]
    fn a_style_sheet_loads_nothing_from_elsewhere() {
        let style = "@import \"https://a.example/x.css\"; a { src: url(x.woff2); b: url('//b.example/y') } url(data:x)";
        assert_eq!(from_elsewhere(style).collect::<Vec<_>>(), ["//b.example/y", "https://a.example/x.css"]);
    }
}
