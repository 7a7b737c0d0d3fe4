//! Security: permitted addresses, tokens, certificates, and limits for each client.

pub(crate) mod audit_log;
pub(crate) mod capacity;
pub(crate) mod certificate;
pub(crate) mod host_check;
pub(crate) mod rate_limit;
pub(crate) mod tokens;
