//! Trust in one certificate: the one that was seen before, or that the user named.
//!
//! No authority signs the certificates of agents.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, OtherError, PeerIncompatible, SignatureScheme};

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// The text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is sha256: and 64 digits, as `probing agent` prints it")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    /// With or without `sha256:`, with or without colons between bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim().strip_prefix("sha256:").unwrap_or(text.trim());
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(NotAFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(NotAFingerprint);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// Accepts one certificate; without one to expect, the first that comes, and tells which it was.
#[derive(Debug)]
pub(crate) struct Pinned {
    expected: Option<Fingerprint>,
    seen: Mutex<Option<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

/// Another certificate than expected.
#[derive(Debug, thiserror::Error)]
#[error("another certificate than expected: {0}")]
pub(crate) struct OtherCertificate(pub(crate) Fingerprint);

impl Pinned {
    pub(crate) fn new(expected: Option<Fingerprint>) -> Arc<Self> {
        Arc::new(Self {
            expected,
            seen: Mutex::default(),
            provider: Arc::new(provider::default_provider()),
        })
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// The certificate that came.
    pub(crate) fn seen(&self) -> Option<Fingerprint> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = Fingerprint::of(certificate);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        match self.expected {
            Some(expected) if expected != fingerprint => {
                let other = OtherCertificate(fingerprint);
                Err(Error::Other(OtherError(Arc::new(other))))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    /// That it has the key, too.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_written_as_it_is_read() {
        let fingerprint = Fingerprint::of(b"certificate");
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        let digits = text.strip_prefix("sha256:").unwrap();
        assert_eq!(digits.to_uppercase().parse(), Ok(fingerprint));
        for wrong in [
            "",
            "sha256:",
            "sha256:12",
            &text[..70],
            &text.replace(&text[10..11], "g"),
        ] {
            assert_eq!(
                wrong.parse::<Fingerprint>(),
                Err(NotAFingerprint),
                "{wrong}"
            );
        }
    }
}
