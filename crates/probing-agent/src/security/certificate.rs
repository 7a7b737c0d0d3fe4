//! The certificate of an agent: its own, made once, or the user's.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probing_client::Fingerprint;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::AgentError;

/// A certificate with its key, ready for connections.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) fingerprint: Fingerprint,
}

impl Certificate {
    /// The one in these files.
    pub(crate) fn of(certificate: &Path, key: &Path) -> Result<Self, AgentError> {
        let failed = |path: &Path, why: String| AgentError::Certificate {
            path: path.to_owned(),
            why,
        };
        let chain: Result<Vec<CertificateDer<'_>>, _> =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain.map_err(|error| failed(certificate, error.to_string()))?;
        let Some(first) = chain.first() else {
            return Err(failed(certificate, "there is none".to_owned()));
        };
        let fingerprint = Fingerprint::of(first);
        let secret = PrivateKeyDer::from_pem_file(key);
        let secret = secret.map_err(|error| failed(key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| failed(certificate, error.to_string()))?;
        Ok(Self {
            config: Arc::new(config),
            fingerprint,
        })
    }

    /// The one in this folder, made if it is not there.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, AgentError> {
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        if !certificate.exists() {
            make(&certificate, &key)?;
        }
        Self::of(&certificate, &key)
    }
}

fn make(certificate: &Path, key: &Path) -> Result<(), AgentError> {
    let failed = |error: rcgen::Error| AgentError::Certificate {
        path: certificate.to_owned(),
        why: error.to_string(),
    };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let secret = KeyPair::generate().map_err(failed)?;
    let names = vec![host, "localhost".to_owned()];
    let made = CertificateParams::new(names).and_then(|params| params.self_signed(&secret));
    let made = made.map_err(failed)?;
    write_secret(key, &secret.serialize_pem())?;
    // Last: where there is a certificate, there is its key.
    write_secret(certificate, &made.pem())
}

fn write_secret(path: &Path, text: &str) -> Result<(), AgentError> {
    let unready: PathBuf = path.with_extension(format!("new.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unready)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unready, path));
    written.map_err(|source| AgentError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_secret() {
        let folder = tempfile::tempdir().unwrap();
        let first = Certificate::in_folder(folder.path()).unwrap();
        let again = Certificate::in_folder(folder.path()).unwrap();
        assert_eq!(first.fingerprint, again.fingerprint);
        let mode = fs::metadata(folder.path().join("key.pem")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(folder.path().join("key.pem"), "nothing").unwrap();
        let broken = Certificate::in_folder(folder.path()).unwrap_err();
        assert!(matches!(broken, AgentError::Certificate { .. }), "{broken}");
    }
}
