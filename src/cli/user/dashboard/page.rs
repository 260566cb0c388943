//! The files of the page, which are in this program. The page asks for nothing else.

use axum::http::header;
use axum::response::IntoResponse;

/// A file of the page.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// Its path below the token.
    pub(super) path: &'static str,
    content: &'static str,
}

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(File { path: $path, content: include_str!(concat!("page/", $path)) }),*]
    };
}

/// All files except the page itself. lit-html is unchanged from its package, as `hack/front-end.sh` checks.
pub(super) const FILES: &[File] = files![
    "app.js",
    "cards.js",
    "dialog.js",
    "election.js",
    "events.js",
    "group.js",
    "history.js",
    "icon.svg",
    "list.js",
    "spark.js",
    "state.js",
    "style.css",
    "tiles.js",
    "timeline.js",
    "words.js",
    "lit-html/LICENSE",
    "lit-html/directive-helpers.js",
    "lit-html/directive.js",
    "lit-html/directives/repeat.js",
    "lit-html/lit-html.js",
];

/// The page itself, at the address that the command prints.
pub(super) const PAGE: File = File { path: "", content: include_str!("page/index.html") };

impl File {
    /// Returns the file as an answer.
    pub(super) fn answer(self) -> impl IntoResponse + use<> {
        let kind = match self.path.rsplit('.').next() {
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            Some("svg") => "image/svg+xml",
            Some("") => "text/html",
            _ => "text/plain",
        };
        ([(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))], self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file that a script or the page names is served, so that nothing is fetched from elsewhere.
    #[test]
    fn whatever_a_file_names_is_in_the_program() {
        let served = |path: &str| FILES.iter().any(|file| file.path == path);
        let mut named = 0;
        for file in FILES.iter().chain([&PAGE]) {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            for marker in ["from '", "from\"", "src=\"", "href=\""] {
                for rest in file.content.split(marker).skip(1) {
                    let name = rest.split(['\'', '"']).next().unwrap();
                    // Links into the page, which the browser follows itself.
                    if name.starts_with('#') {
                        continue;
                    }
                    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
                    for part in name.split('/') {
                        match part {
                            "." => {}
                            ".." => drop(parts.pop()),
                            part => parts.push(part),
                        }
                    }
                    assert!(served(&parts.join("/")), "{} names {name}", file.path);
                    named += 1;
                }
            }
        }
        assert!(named > 15, "{named}");
    }
}
