//! The rights in docs/security.md are those that the API server reports.

use std::collections::BTreeSet;
use std::path::Path;

use lictor_testing::kubernetes::Cluster;

/// Compares the rights of an account in a namespace, apart from those that every account has without lictor, with the block in docs/security.md that
/// begins with this title. `LICTOR_BLESS=1` writes them there.
pub fn assert_documented(cluster: &Cluster, title: &str, namespace: &str, account: &str) {
    let mut nobody = lines(cluster, namespace, &format!("system:serviceaccount:{namespace}:nobody"));
    nobody.retain(|line| !line.contains(".lictor.dev"));
    let lines = lines(cluster, namespace, &format!("system:serviceaccount:{account}"));
    let found: Vec<&str> = lines.difference(&nobody).map(String::as_str).collect();
    let found = if found.is_empty() { "none".to_owned() } else { found.join("\n") };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let document = std::fs::read_to_string(&path).expect("the document can be read");
    let begin = format!("```\n# {title}\n");
    let start =
        document.find(&begin).unwrap_or_else(|| panic!("docs/security.md has no block `# {title}`")) + begin.len();
    let length = document[start..].find("\n```").expect("a block ends");
    let written = &document[start..start + length];
    if std::env::var_os("LICTOR_BLESS").is_some() {
        std::fs::write(&path, format!("{}{found}{}", &document[..start], &document[start + length..]))
            .expect("it can be written");
        return;
    }
    assert_eq!(written, found, "docs/security.md, {title}: LICTOR_BLESS=1 cargo test --test chart writes it");
}

/// Returns the lines of `kubectl auth can-i --list`: resource, names, verbs. It leaves out what is not a resource, because
/// everybody may use that.
fn lines(cluster: &Cluster, namespace: &str, user: &str) -> BTreeSet<String> {
    let told = cluster.kubectl(&["auth", "can-i", "--list", "--no-headers", "-n", namespace, "--as", user]);
    let rule = |line: &str| {
        let (resource, rest) = line.split_once(char::is_whitespace)?;
        let columns: Vec<&str> = rest.split(['[', ']']).map(str::trim).filter(|text| !text.is_empty()).collect();
        let (verbs, names) = columns.split_last()?;
        (!resource.is_empty()).then(|| {
            let names = if names.is_empty() { String::new() } else { format!("{}  ", names.join(" ")) };
            format!("{resource:<50}{names}[{verbs}]")
        })
    };
    told.lines().filter_map(rule).collect()
}
