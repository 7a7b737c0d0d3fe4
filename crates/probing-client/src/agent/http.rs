//! One HTTP/1.1 request and its answer, whose body is read as it comes.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write as _};

use crate::agent::stream::Stream;

/// No head of an answer, and no line between its parts, is longer.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Headers,
    pub(crate) body: Body,
}

type Headers = Vec<(String, String)>;

/// The bytes of an answer, in whatever pieces they travel.
#[derive(Debug)]
pub(crate) struct Body {
    reader: BufReader<Stream>,
    rest: BodyRemainder,
    trailers: Headers,
}

/// What is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyRemainder {
    Bytes(u64),
    /// So many of this piece, then others.
    Piece(u64),
    NextPiece,
    UntilClosed,
    Nothing,
}

/// Sends a request and reads the head of the answer.
pub(crate) fn exchange(mut stream: Stream, request: &[u8]) -> io::Result<Response> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut reader = BufReader::new(stream);
    let head = head(&mut reader)?;
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut fields);
    let malformed = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    parsed
        .parse(&head)
        .map_err(|error| malformed(&format!("no HTTP: {error}")))?;
    let status = parsed.code.ok_or_else(|| malformed("no HTTP"))?;
    let headers: Headers = parsed.headers.iter().map(owned).collect();
    let is_chunked = value(&headers, "transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let rest = match value(&headers, "content-length").map(str::parse) {
        _ if status == 101 => BodyRemainder::Nothing,
        _ if is_chunked => BodyRemainder::NextPiece,
        Some(Ok(length)) => BodyRemainder::Bytes(length),
        Some(Err(_)) => return Err(malformed("a length that is not a number")),
        None => BodyRemainder::UntilClosed,
    };
    Ok(Response {
        status,
        headers,
        body: Body {
            reader,
            rest,
            trailers: Vec::new(),
        },
    })
}

fn owned(field: &httparse::Header<'_>) -> (String, String) {
    let value = String::from_utf8_lossy(field.value).into_owned();
    (field.name.to_ascii_lowercase(), value)
}

fn value<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let mut named = headers
        .iter()
        .filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.next().map(|(_, value)| value.as_str())
}

/// All bytes up to and with the empty line.
fn head(reader: &mut BufReader<Stream>) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let line = line(reader)?;
        let is_end = line == b"\r\n" || line == b"\n";
        head.extend(line);
        if is_end {
            return Ok(head);
        }
        if head.len() > MAX_HEAD_BYTES {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a head without an end",
            ));
        }
    }
}

/// With its end.
fn line(reader: &mut BufReader<Stream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut limited = reader.by_ref().take(MAX_HEAD_BYTES as u64);
    limited.read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => Ok(line),
        Some(_) if line.len() == MAX_HEAD_BYTES => Err(io::Error::new(
            ErrorKind::InvalidData,
            "a line without an end",
        )),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }

    /// The connection, and what was read of it beyond the head, when it goes on as something else.
    pub(crate) fn into_stream(self) -> (Stream, Vec<u8>) {
        let read = self.body.reader.buffer().to_vec();
        (self.body.reader.into_inner(), read)
    }

    /// All of the body, but no more than `most` bytes.
    pub(crate) fn bytes(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.body.by_ref().take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "an answer that is too long",
            ));
        }
        Ok(bytes)
    }
}

impl Body {
    /// What was said after the last byte. Nothing before that was read.
    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        value(&self.trailers, name)
    }

    /// The length of the next piece; behind the last, the trailers.
    fn next_piece(&mut self) -> io::Result<BodyRemainder> {
        let line = line(&mut self.reader)?;
        let text = String::from_utf8_lossy(&line);
        let digits = text.trim_end().split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        if length > 0 {
            return Ok(BodyRemainder::Piece(length));
        }
        let trailers = head(&mut self.reader)?;
        let mut fields = [httparse::EMPTY_HEADER; 16];
        if let Ok(httparse::Status::Complete((_, fields))) =
            httparse::parse_headers(&trailers, &mut fields)
        {
            self.trailers = fields.iter().map(owned).collect();
        }
        Ok(BodyRemainder::Nothing)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.rest == BodyRemainder::NextPiece {
            self.rest = self.next_piece()?;
        }
        let most = match self.rest {
            BodyRemainder::Nothing | BodyRemainder::Bytes(0) => return Ok(0),
            BodyRemainder::Bytes(left) | BodyRemainder::Piece(left) => {
                left.min(buffer.len() as u64) as usize
            }
            BodyRemainder::UntilClosed | BodyRemainder::NextPiece => buffer.len(),
        };
        let length = self.reader.read(&mut buffer[..most])?;
        let left = |left: u64| left - length as u64;
        match self.rest {
            BodyRemainder::Bytes(_) | BodyRemainder::Piece(_) if length == 0 => {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            BodyRemainder::Bytes(before) => self.rest = BodyRemainder::Bytes(left(before)),
            BodyRemainder::Piece(before) if left(before) > 0 => {
                self.rest = BodyRemainder::Piece(left(before));
            }
            BodyRemainder::Piece(_) => {
                // The end of the piece's line.
                line(&mut self.reader)?;
                self.rest = BodyRemainder::NextPiece;
            }
            _ => {}
        }
        Ok(length)
    }
}
