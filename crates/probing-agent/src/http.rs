//! HTTP: connections, requests and routes of the agent.

pub(crate) mod connection;
pub(crate) mod json;
pub(crate) mod listener;
pub(crate) mod openapi;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod requester;
pub(crate) mod routes;
