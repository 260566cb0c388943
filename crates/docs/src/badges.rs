//! docs/pictures/badges.svg: four facts about the project, from the files that decide them. They are a file of this repository, so
//! that no page loads anything from elsewhere.

use std::fmt::Write as _;

use anyhow::Context;

/// Returns the picture, from Cargo.toml, the chart's Chart.yaml and the CRDs.
///
/// # Errors
/// If one of the facts is not in its file.
pub fn picture(cargo: &str, chart: &str, crds: &str) -> anyhow::Result<String> {
    let kubernetes = quoted(chart, "kubeVersion: ")?.trim_start_matches(">=").trim_end_matches(".0-0");
    let version =
        crds.lines().find_map(|line| line.trim_start().strip_prefix("name: ").filter(|name| name.starts_with('v')));
    let facts = [
        ("Kubernetes", format!("{kubernetes} or newer")),
        ("API", version.context("the CRDs name no version")?.to_owned()),
        ("Rust", format!("{} or newer", quoted(cargo, "rust-version = ")?)),
        ("license", quoted(cargo, "license = ")?.to_owned()),
    ];
    Ok(drawn(&facts))
}

/// The text in quotation marks after this beginning of a line.
fn quoted<'a>(file: &'a str, beginning: &str) -> anyhow::Result<&'a str> {
    let rest = file.lines().find_map(|line| line.strip_prefix(beginning));
    Ok(rest.with_context(|| format!("no line begins with {beginning}"))?.trim_matches('"'))
}

const HEIGHT: u32 = 24;
/// On each side of a text.
const MARGIN: u32 = 9;
/// Between two badges.
const GAP: u32 = 8;
const STYLE: &str = "text { font: 12px system-ui, sans-serif; fill: #1b232c } .name { fill: #f4f6f8; stroke: #d3d9df } \
                     .fact { fill: #0b57d0 } .fact + text { fill: #ffffff } \
                     @media (prefers-color-scheme: dark) { text { fill: #e6ebf0 } .name { fill: #1b222a; stroke: #36414c } \
                     .fact { fill: #8ab4f8 } .fact + text { fill: #12171d } }";

fn drawn(facts: &[(&str, String)]) -> String {
    let (mut parts, mut x) = (String::new(), 1);
    for (name, fact) in facts {
        for (class, text) in [("name", *name), ("fact", fact.as_str())] {
            let width = text.chars().fold(2 * MARGIN, |width, c| width + if "il.- 1r".contains(c) { 5 } else { 7 });
            let (middle, base) = (x + width / 2, HEIGHT / 2 + 4);
            let _ = writeln!(
                parts,
                "  <rect x=\"{x}\" y=\"1\" width=\"{width}\" height=\"{}\" class=\"{class}\"/>",
                HEIGHT - 2
            );
            let _ = writeln!(parts, "  <text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{text}</text>");
            x += width;
        }
        x += GAP;
    }
    let width = x - GAP + 1;
    let said: Vec<_> = facts.iter().map(|(name, fact)| format!("{name} {fact}")).collect();
    format!(
        "<svg role=\"img\" width=\"{width}\" height=\"{HEIGHT}\" viewBox=\"0 0 {width} {HEIGHT}\" xmlns=\"http://www.w3.org/2000/svg\">\n  \
         <title>{}</title>\n  <style>{STYLE}</style>\n{parts}</svg>\n",
        said.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_facts_come_from_their_files() {
        let cargo = "rust-version = \"1.89\"\nlicense = \"Apache-2.0\"\n";
        let made = |chart| picture(cargo, chart, "spec:\n  versions:\n    name: v1\n");
        let picture = made("kubeVersion: \">=1.33.0-0\"\n").unwrap();
        assert!(
            picture.contains("<title>Kubernetes 1.33 or newer, API v1, Rust 1.89 or newer, license Apache-2.0</title>")
        );
        assert_eq!(made("name: x\n").unwrap_err().to_string(), "no line begins with kubeVersion: ");
    }
}
