//! The check of `Host` and `Origin`, which keeps web pages from using an agent.
//!
//! A browser says which page a request is from (`Origin`), and by which name it found the agent (`Host`). A page of
//! another origin is refused; so is a name that is none of this machine's, which somebody's name server may have given to
//! this address only now. Commands and `curl` say no origin, and call the agent by its address.

use std::fs;
use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};

use crate::http::refusal::Refused;
use crate::http::request::only;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Names of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// `localhost`, and what the machine calls itself: alone, and within the domains in which it looks up names itself. Any
    /// other domain may be somebody else's.
    pub(crate) fn of_this_machine() -> Self {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy().into_owned();
        let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        Self::of(&host, &resolver)
    }

    fn of(host: &str, resolver: &str) -> Self {
        let host = host.to_lowercase();
        let short = host.split('.').next().unwrap_or_default();
        let mut names = vec!["localhost".to_owned()];
        if !short.is_empty() {
            let domains = resolver.lines().filter_map(domains_in).flatten();
            names.extend(domains.map(|domain| format!("{short}.{}", domain.to_lowercase())));
            names.push(short.to_owned());
            names.push(host);
        }
        Self(names)
    }

    /// Whether a request may be meant for us.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let Some(host) = only(headers, header::HOST)? else {
            return Err(Refused::bad("a request without Host"));
        };
        if !self.is_ours(host) {
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                format!("not a name of this machine: {host}"),
            )
            .hint("use the agent's address, `localhost` or the machine's own name"));
        }
        let is_foreign = |origin: &str| {
            let page = origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"));
            page.is_none_or(|page| !page.eq_ignore_ascii_case(host))
        };
        if let Some(origin) = only(headers, header::ORIGIN)?.filter(|origin| is_foreign(origin)) {
            return Err(Refused::new(
                StatusCode::FORBIDDEN,
                format!("a web page of another origin: {origin}"),
            )
            .hint(
                "web pages may not use an agent; use `probing`, or a program without an Origin",
            ));
        }
        // Browsers say so of requests that have no origin, too.
        match only(headers, FETCH_SITE)? {
            Some("cross-site" | "same-site") => Err(Refused::new(
                StatusCode::FORBIDDEN,
                "a web page of another site",
            )
            .hint("web pages may not use an agent; use `probing`")),
            _ => Ok(()),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            // An IPv6 address stands in brackets.
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let name = name.to_lowercase();
        address.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

/// `search a.example b.example`
fn domains_in(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mut words = line.split_ascii_whitespace();
    let is_list = matches!(words.next()?, "search" | "domain");
    is_list.then(|| {
        words
            .map(|domain| domain.trim_matches('.'))
            .filter(|domain| !domain.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::of(
            "Node7",
            "nameserver 10.0.0.1\nsearch cluster.local. example.org\n",
        )
    }

    fn check(fields: &[(&str, &str)]) -> Result<(), u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let checked = names().check(&headers);
        checked.map_err(|refused| refused.status.as_u16())
    }

    #[test]
    fn a_host_is_an_address_or_a_name_of_this_machine() {
        for host in [
            "127.0.0.1:8080",
            "10.1.2.3",
            "[::1]:8080",
            "localhost:8080",
            "LOCALHOST",
            "node7",
            "node7:8080",
            "node7.cluster.local:8080",
            "node7.example.org",
        ] {
            assert_eq!(check(&[("Host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "node70",
            "node7.evil.example",
            "node7.evil.example:8080",
            "node7.cluster.local.evil.example",
            "xnode7.local",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            ":8080",
        ] {
            assert_eq!(check(&[("Host", host)]), Err(403), "{host}");
        }
        assert_eq!(check(&[]), Err(400));
        assert_eq!(
            check(&[("Host", "localhost"), ("Host", "localhost")]),
            Err(400)
        );
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let host = ("Host", "localhost:8080");
        for origin in ["http://localhost:8080", "https://localhost:8080"] {
            assert_eq!(check(&[host, ("Origin", origin)]), Ok(()), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "http://localhost",
            "http://localhost:8081",
            "http://localhost:8080.evil.example",
            "null",
            "",
            "file://",
        ] {
            assert_eq!(check(&[host, ("Origin", origin)]), Err(403), "{origin}");
        }
        assert_eq!(check(&[host, ("Sec-Fetch-Site", "cross-site")]), Err(403));
        assert_eq!(check(&[host, ("Sec-Fetch-Site", "none")]), Ok(()));
    }
}
