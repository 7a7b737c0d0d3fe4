//! Requests in and answers out: as much of HTTP/1.1 as an agent needs, and what goes beyond is refused.
//!
//! A body has a length that is said before it; two ways to tell where a request ends are none.

use std::io::{self, ErrorKind, Read as _, Write};
use std::time::{Duration, Instant};

use probing_client::{Duplex as _, Stream};
use probing_proto::agent::{Refusal, RefusalKind};
use probing_proto::message::Failure;

/// Longest head of a request.
const MOST_HEAD: usize = 16 << 10;
const MOST_FIELDS: usize = 64;
/// Longest body.
pub(crate) const MOST_BODY: usize = 1 << 20;
/// From its first byte, for a head to arrive; and for a body.
const ARRIVAL: Duration = Duration::from_secs(5);
/// For the next request on a connection to begin.
const IDLE: Duration = Duration::from_secs(30);
/// For a client to take an answer.
const TAKING: Duration = Duration::from_mins(1);
/// For one that was refused to stop sending, so that it sees why.
const LINGER: Duration = Duration::from_secs(2);

/// How a TLS conversation begins: with a handshake.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// The first lines of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Behind the `?`.
    pub(crate) query: String,
    fields: Vec<(String, String)>,
    /// Whether another request may follow.
    keeps: bool,
}

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) refusal: Refusal,
    /// Fields for the answer.
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl Refused {
    pub(crate) fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            status,
            refusal: Refusal {
                failure: Failure::new(error),
                kind: None,
            },
            fields: Vec::new(),
        }
    }

    /// The request itself is wrong.
    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(400, error)
            .hint("docs/remote.md shows what can be asked; GET /openapi.json describes it")
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.refusal.failure.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn kind(mut self, kind: RefusalKind) -> Self {
        self.refusal.kind = Some(kind);
        self
    }

    #[must_use]
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

impl Head {
    /// Reads the lines; `bytes` ends with the empty one.
    fn parse(bytes: &[u8]) -> Result<Self, Refused> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(Refused::bad("half a request")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Refused::new(431, "too many header fields"));
            }
            Err(error) => return Err(Refused::bad(format!("no HTTP/1.1 request: {error}"))),
        }
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !path.starts_with('/') {
            return Err(Refused::bad("a request names a path"));
        }
        let fields = request.headers.iter().map(|field| {
            let value = std::str::from_utf8(field.value).map(str::trim);
            let value = value.map_err(|_other| Refused::bad("a header field that is no text"))?;
            Ok((field.name.to_ascii_lowercase(), value.to_owned()))
        });
        let mut head = Self {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            fields: fields.collect::<Result<_, _>>()?,
            keeps: request.version == Some(1),
        };
        let closes = head.field("connection").is_some_and(|connection| {
            let mut words = connection.split(',');
            words.any(|word| word.trim().eq_ignore_ascii_case("close"))
        });
        head.keeps &= !closes;
        Ok(head)
    }

    #[cfg(test)]
    pub(crate) fn of(method: &str, path: &str, fields: &[(&str, &str)]) -> Self {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        Self::parse(format!("{text}\r\n").as_bytes()).unwrap()
    }

    /// The first of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut named = self.fields.iter().filter(|(known, _)| known == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// The only one of this name: where there are two, somebody between may have read the other.
    pub(crate) fn only(&self, name: &str) -> Result<Option<&str>, Refused> {
        let mut named = self.fields.iter().filter(|(known, _)| known == name);
        let first = named.next().map(|(_, value)| value.as_str());
        match named.next() {
            Some(_) => Err(Refused::bad(format!("two fields of this name: {name}"))),
            None => Ok(first),
        }
    }

    /// How many bytes follow.
    fn length(&self) -> Result<usize, Refused> {
        if self.field("transfer-encoding").is_some() {
            return Err(
                Refused::new(411, "a body must say its length").hint("send it with Content-Length")
            );
        }
        let Some(length) = self.only("content-length")? else {
            return Ok(0);
        };
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Err(Refused::bad("a Content-Length that is no number"));
        }
        match length.parse::<usize>() {
            Ok(length) if length <= MOST_BODY => Ok(length),
            _ => Err(
                Refused::new(413, format!("a body of more than {MOST_BODY} bytes"))
                    .hint("send less: code can read a file that is on the target's machine"),
            ),
        }
    }
}

/// A client, request after request.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: Stream,
    /// Read, and not used yet.
    ahead: Vec<u8>,
}

impl Conversation {
    pub(crate) fn with(stream: Stream) -> Self {
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    /// The next request; none when there is no other. One that cannot be read is the last.
    pub(crate) fn next_head(&mut self) -> io::Result<Option<Result<Head, Refused>>> {
        self.set_deadline(IDLE)?;
        // From the first byte on, time is short.
        if self.ahead.is_empty() && !self.fill()? {
            return Ok(None);
        }
        self.set_deadline(ARRIVAL)?;
        if self.ahead.first() == Some(&TLS_HANDSHAKE) {
            let refused = Refused::bad("this port speaks plain text, not TLS");
            return Ok(Some(Err(refused)));
        }
        loop {
            let end = end_of_head(&self.ahead);
            if let Some(end) = end.filter(|end| *end <= MOST_HEAD) {
                let head: Vec<u8> = self.ahead.drain(..end).collect();
                return Ok(Some(Head::parse(&head)));
            }
            if end.is_some() || self.ahead.len() > MOST_HEAD {
                let refused = Refused::new(431, format!("a head of more than {MOST_HEAD} bytes"));
                return Ok(Some(Err(refused)));
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(Some(Err(Refused::bad("half a request")))),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Ok(Some(Err(late())));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The body that belongs to a head.
    pub(crate) fn body(&mut self, head: &Head) -> io::Result<Result<Vec<u8>, Refused>> {
        let length = match head.length() {
            Ok(length) => length,
            Err(refused) => return Ok(Err(refused)),
        };
        let expects = head
            .field("expect")
            .is_some_and(|word| word.eq_ignore_ascii_case("100-continue"));
        self.set_deadline(ARRIVAL)?;
        if expects && self.ahead.len() < length {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            self.stream.flush()?;
        }
        while self.ahead.len() < length {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(Err(Refused::bad("half a body"))),
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Err(late())),
                Err(error) => return Err(error),
            }
        }
        Ok(Ok(self.ahead.drain(..length).collect()))
    }

    /// Answers with JSON; whether another request may follow.
    pub(crate) fn answer(&mut self, head: &Head, json: &[u8]) -> io::Result<bool> {
        let keeps = head.keeps;
        self.send(
            200,
            &[("Content-Type", "application/json".to_owned())],
            json,
            keeps,
        )?;
        Ok(keeps)
    }

    /// Says why not. What the client still sends is not read as a request.
    pub(crate) fn refuse(&mut self, refused: &Refused) -> io::Result<()> {
        let json = serde_json::to_vec(&refused.refusal)?;
        let mut fields = vec![("Content-Type", "application/json".to_owned())];
        fields.extend(refused.fields.iter().cloned());
        self.send(refused.status, &fields, &json, false)?;
        self.linger();
        Ok(())
    }

    fn send(
        &mut self,
        status: u16,
        fields: &[(&str, String)],
        body: &[u8],
        keeps: bool,
    ) -> io::Result<()> {
        let mut bytes = head(status, fields);
        let length = body.len();
        let connection = if keeps { "keep-alive" } else { "close" };
        bytes.extend(
            format!("Content-Length: {length}\r\nConnection: {connection}\r\n\r\n").bytes(),
        );
        bytes.extend(body);
        self.set_deadline(TAKING)?;
        self.stream.write_all(&bytes)?;
        self.stream.flush()
    }

    /// Answers with bytes as they come.
    pub(crate) fn pieces(&mut self, kind: &str, trailer: &str) -> io::Result<Pieces<'_>> {
        let fields = [
            ("Content-Type", kind.to_owned()),
            ("Transfer-Encoding", "chunked".to_owned()),
            ("Trailer", trailer.to_owned()),
            ("Connection", "close".to_owned()),
        ];
        let mut bytes = head(200, &fields);
        bytes.extend(b"\r\n");
        self.set_deadline(TAKING)?;
        self.stream.write_all(&bytes)?;
        Ok(Pieces { conversation: self })
    }

    /// Goes on as something else.
    pub(crate) fn upgrade(mut self, fields: &[(&str, String)]) -> io::Result<(Stream, Vec<u8>)> {
        let mut bytes = head(101, fields);
        bytes.extend(b"\r\n");
        self.set_deadline(TAKING)?;
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        Ok((self.stream, self.ahead))
    }

    fn set_deadline(&mut self, patience: Duration) -> io::Result<()> {
        let tcp = self.stream.tcp();
        tcp.set_deadline(Some(Instant::now() + patience))
    }

    /// Reads some more; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 8 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(length) => {
                    self.ahead.extend_from_slice(&buffer[..length]);
                    return Ok(length > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Gone without a goodbye, or before the first word.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection that is closed while bytes arrive takes back what was said last.
    fn linger(&mut self) {
        linger(&mut self.stream);
    }
}

/// Lets the other end read what was said last.
pub(crate) fn linger(stream: &mut Stream) {
    let tcp = stream.tcp();
    tcp.end_sending();
    if tcp.set_deadline(Some(Instant::now() + LINGER)).is_err() {
        return;
    }
    let mut buffer = [0; 8 << 10];
    // Of the bytes themselves: nobody wants to know what they say.
    while matches!(stream.tcp().read(&mut buffer), Ok(length) if length > 0) {}
}

/// A body of unknown length.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    conversation: &'a mut Conversation,
}

impl Pieces<'_> {
    /// Behind the last: what is known only now.
    pub(crate) fn end(self, trailer: &str, value: &str) -> io::Result<()> {
        let text = format!("0\r\n{trailer}: {value}\r\n\r\n");
        self.conversation.stream.write_all(text.as_bytes())?;
        self.conversation.stream.flush()?;
        self.conversation.linger();
        Ok(())
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.conversation.set_deadline(TAKING)?;
        let mut piece = format!("{:x}\r\n", bytes.len()).into_bytes();
        piece.extend(bytes);
        piece.extend(b"\r\n");
        self.conversation.stream.write_all(&piece)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.conversation.stream.flush()
    }
}

/// The first lines of an answer, without the empty one.
fn head(status: u16, fields: &[(&str, String)]) -> Vec<u8> {
    let words = match status {
        101 => "Switching Protocols",
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Failed",
    };
    let mut text = format!(
        "HTTP/1.1 {status} {words}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    );
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.into_bytes()
}

/// For who may not even ask, and has not been read.
pub(crate) fn refused_at_once(refused: &Refused) -> Vec<u8> {
    let json = serde_json::to_vec(&refused.refusal).unwrap_or_default();
    let mut bytes = head(
        refused.status,
        &[("Content-Type", "application/json".to_owned())],
    );
    let length = json.len();
    bytes.extend(format!("Content-Length: {length}\r\nConnection: close\r\n\r\n").bytes());
    bytes.extend(json);
    bytes
}

fn late() -> Refused {
    let seconds = ARRIVAL.as_secs();
    Refused::new(
        408,
        format!("the request did not arrive within {seconds} s"),
    )
}

/// Where the empty line ends.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let find = |end: &[u8]| {
        let position = bytes.windows(end.len()).position(|window| window == end);
        position.map(|position| position + end.len())
    };
    match (find(b"\r\n\r\n"), find(b"\n\n")) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> u16 {
        match Head::parse(text.as_bytes()).and_then(|head| head.length()) {
            Ok(length) => panic!("{text:?} was taken, with a body of {length}"),
            Err(refused) => refused.status,
        }
    }

    #[test]
    fn what_is_not_plainly_one_request_is_refused() {
        for text in [
            "\r\n\r\n",
            "GET\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            "GET http://elsewhere/ HTTP/1.1\r\n\r\n",
            "GET * HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nname : x\r\n\r\n",
            "GET / HTTP/1.1\r\nx: \u{0}\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0x10\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
        ] {
            assert_eq!(refused(text), 400, "{text:?}");
        }
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refused(chunked), 411);
        let both = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n";
        assert_eq!(refused(both), 411);
        let large = "POST / HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n";
        assert_eq!(refused(large), 413);
        let endless = "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n";
        assert_eq!(refused(endless), 413);
        let many = "GET / HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(MOST_FIELDS + 1) + "\r\n";
        assert_eq!(refused(&many), 431);
    }

    #[test]
    fn a_head_is_a_method_a_path_and_a_query() {
        let head = Head::of("GET", "/backtrace?rank=3", &[("Connection", "x, Close")]);
        assert_eq!(
            (head.path.as_str(), head.query.as_str()),
            ("/backtrace", "rank=3")
        );
        assert!(!head.keeps);
        assert!(Head::of("GET", "/", &[]).keeps);
    }

    #[test]
    fn the_end_of_a_head_is_its_empty_line() {
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(end_of_head(b"a\r\n\r\nb"), Some(5));
        assert_eq!(end_of_head(b"a\n\nb\r\n\r\n"), Some(3));
    }
}
