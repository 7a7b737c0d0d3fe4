//! The path of the Python package, which `probing run` gives to programs without it.

use std::fs;
use std::path::{Path, PathBuf};

use probing_proto::env::PROBING_PACKAGE;

use crate::error::{ClientError, LocalError};

/// The native module, which every working copy of the package contains.
pub(crate) const PROBE: &str = "probing/_probe.abi3.so";

/// The folder that contains the package `probing`: named by the user, or beside this command.
///
/// Never looked up in the target's environment: the command brings its own.
pub fn package_dir() -> Result<PathBuf, ClientError> {
    if let Some(named) = PROBING_PACKAGE.value() {
        return has_package(Path::new(&named)).ok_or(ClientError::Local(LocalError::NoPackage));
    }
    let command = std::env::current_exe().ok();
    command
        .as_deref()
        .and_then(|command| command.ancestors().nth(2))
        .and_then(beside)
        .ok_or(ClientError::Local(LocalError::NoPackage))
}

/// The package installed below `prefix`, whose `bin` holds the command: as files, or as a link to a checkout.
fn beside(prefix: &Path) -> Option<PathBuf> {
    ["lib", "lib64"]
        .iter()
        .flat_map(|lib| fs::read_dir(prefix.join(lib)))
        .flatten()
        .flatten()
        .flat_map(|python| ["site-packages", "dist-packages"].map(|site| python.path().join(site)))
        .find_map(|site| has_package(&site).or_else(|| linked(&site)))
}

/// An editable install is a `.pth` file that names the checkout's folder.
fn linked(site: &Path) -> Option<PathBuf> {
    let link = fs::read_to_string(site.join("probing.pth")).ok()?;
    link.lines().find_map(|line| has_package(Path::new(line)))
}

fn has_package(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder.join(PROBE).is_file().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_package_is_found_beside_the_command() {
        let prefix = tempfile::tempdir().unwrap();
        assert_eq!(beside(prefix.path()), None);
        let site = prefix.path().join("lib/python3.12/site-packages");
        touch(&site.join(PROBE));
        assert_eq!(beside(prefix.path()), Some(site));
    }

    #[test]
    fn an_editable_install_leads_to_the_checkout() {
        let (prefix, checkout) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        touch(&checkout.path().join(PROBE));
        let site = prefix.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(&site).unwrap();
        fs::write(
            site.join("probing.pth"),
            format!("{}\n", checkout.path().display()),
        )
        .unwrap();
        assert_eq!(beside(prefix.path()), Some(checkout.path().to_owned()));
    }
}
