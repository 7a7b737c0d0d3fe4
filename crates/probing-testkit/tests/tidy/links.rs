//! Links between documents lead to files and headings that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use probing_testkit::root;

use crate::files;

#[test]
fn every_link_in_a_document_leads_somewhere() {
    let documents = documents();
    assert!(documents.len() > 15, "{documents:?}");
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|document| broken(document))
        .collect();
    assert_eq!(broken, [""; 0], "links that lead nowhere");
}

/// A document that no other leads to is not found by anybody.
#[test]
fn the_index_of_the_documents_has_all_of_them() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let linked: BTreeSet<String> = links(&index).into_iter().collect();
    for document in files(&root().join("docs"), "md") {
        let name = document.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name == "README.md" || linked.contains(&name),
            "docs/README.md does not lead to {name}"
        );
    }
}

#[test]
fn a_link_without_its_file_or_heading_is_found() {
    let page = "# A page\n\n## Bytes of `memory`, and more\n\n```sh\n# No heading\n```\n";
    let anchors = anchors(page);
    assert!(anchors.contains("bytes-of-memory-and-more"), "{anchors:?}");
    assert!(!anchors.contains("no-heading"), "{anchors:?}");
    let text =
        "[a](docs/none.md) ![b](c.svg \"title\") `[d](e)` [f](https://g)\n```\n[h](i)\n```\n";
    assert_eq!(links(text), ["docs/none.md", "c.svg"]);
    assert!(leads_nowhere(&root().join("README.md"), "docs/none.md"));
    assert!(leads_nowhere(&root().join("README.md"), "#no-such-heading"));
    assert!(!leads_nowhere(&root().join("README.md"), "docs/README.md"));
}

/// All that we wrote: not what tools and caches have put here.
fn documents() -> Vec<PathBuf> {
    let at_root = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut documents: Vec<PathBuf> = at_root.filter(|path| is_document(path)).collect();
    for folder in [
        "docs", "examples", "crates", "tests", "benches", "scripts", "python",
    ] {
        documents.extend(files(&root().join(folder), "md"));
    }
    documents
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

fn broken(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    links(&text)
        .into_iter()
        .filter(|link| leads_nowhere(document, link))
        .map(|link| format!("{}: {link}", document.display()))
        .collect()
}

fn leads_nowhere(document: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => document.to_owned(),
        _ => document.parent().unwrap().join(path),
    };
    if !target.exists() {
        return true;
    }
    if anchor.is_empty() || !is_document(&target) {
        return false;
    }
    !anchors(&fs::read_to_string(target).unwrap()).contains(anchor)
}

/// The targets of relative links, in the order of the text.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split([')', ' ', '\n']).next())
        .filter(|target| {
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
        })
        .map(str::to_owned)
        .collect()
}

/// What `#…` may be after a page's name, as GitHub makes it from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = without_blocks(text);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let anchor: String = heading.chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(again);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

fn without_blocks(text: &str) -> String {
    let outside = text.split("\n```").step_by(2);
    outside.collect::<Vec<_>>().join("\n")
}

/// Without code.
fn prose(text: &str) -> String {
    without_blocks(text).split('`').step_by(2).collect()
}
