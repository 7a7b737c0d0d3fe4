//! Proof that a client knows an agent's token, bound to one TLS connection, so that the token itself never travels.
//!
//! Both ends of a TLS 1.3 connection derive the same 32 bytes from its handshake (`tls-exporter`, RFC 9266), and nobody else
//! can: whoever stands between two connections has two different values. The proof is an HMAC of that value, keyed with the
//! SHA-256 of the token. It is worth nothing on any other connection, and says nothing of a token that cannot be guessed.

use ring::digest::{SHA256, digest};
use ring::hmac;
use rustls::{ConnectionCommon, SideData};

/// What RFC 9266 calls `tls-exporter`.
const LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// What the proof is for: the value may bind other protocols, too.
const PURPOSE: &[u8] = b"probing agent token, version 1\0";

/// The value that only the two ends of one TLS connection know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChannelBinding([u8; 32]);

impl ChannelBinding {
    /// That of a connection whose handshake is complete.
    pub fn of<S: SideData>(connection: &ConnectionCommon<S>) -> Result<Self, rustls::Error> {
        let value = connection.export_keying_material([0; 32], LABEL, Some(&[]))?;
        Ok(Self(value))
    }
}

/// Secrets are not for logs.
impl std::fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChannelBinding(…)")
    }
}

/// The SHA-256 of a token: what an agent keeps of it, and what keys a proof.
pub fn token_key(token: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token).as_ref());
    key
}

/// The proof that whoever makes it knows the token of this key.
pub fn token_proof(key: &[u8; 32], binding: &ChannelBinding) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(PURPOSE);
    context.update(&binding.0);
    let mut proof = [0; 32];
    proof.copy_from_slice(context.sign().as_ref());
    proof
}

/// In hexadecimal digits, as a header carries it.
pub(crate) fn proof_digits(token: &str, binding: &ChannelBinding) -> String {
    let proof = token_proof(&token_key(token.as_bytes()), binding);
    proof.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_token_on_one_connection() {
        let (one, other) = (ChannelBinding([1; 32]), ChannelBinding([2; 32]));
        let key = token_key(b"a token that nobody guesses");
        let proof = token_proof(&key, &one);
        assert_eq!(proof, token_proof(&key, &one));
        assert_ne!(proof, token_proof(&key, &other));
        assert_ne!(proof, token_proof(&token_key(b"another token"), &one));
        assert_eq!(format!("{one:?}"), "ChannelBinding(…)");
    }
}
