//! A connection as hyper is given it.
//!
//! What hyper says by itself, to who sends what is no request, is a status without a word. It is kept back, and told in
//! our words when hyper has given up. What is written waits for its reader only so long.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

/// For a client to take some of an answer.
const TAKING: Duration = Duration::from_mins(1);
/// For one that was answered to stop sending, so that it sees what was said: a connection that is closed while bytes
/// arrive takes back what was said last.
const LINGER: Duration = Duration::from_secs(2);

/// TCP, or TLS over it.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Held by hyper, which drives it, and by who ends it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    line: Mutex<Line>,
    /// Whether a request has come that hyper understood.
    heard: AtomicBool,
}

struct Line {
    stream: Box<dyn Duplex>,
    /// Runs while the client takes nothing.
    taking: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(crate) fn over(stream: impl Duplex + 'static) -> Self {
        Self(Arc::new(Shared {
            line: Mutex::new(Line {
                stream: Box::new(stream),
                taking: None,
            }),
            heard: AtomicBool::new(false),
        }))
    }

    /// A request has come: what is said from now on is ours.
    pub(crate) fn hear(&self) {
        self.0.heard.store(true, Ordering::Release);
    }

    pub(crate) fn was_heard(&self) -> bool {
        self.0.heard.load(Ordering::Acquire)
    }

    /// Says something without hyper.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hear();
        self.write_all(bytes).await?;
        self.flush().await
    }

    /// Ends it so that the other end can read what was said last. Not one that goes on as something else.
    pub(crate) async fn end(mut self) {
        if Arc::strong_count(&self.0) > 1 {
            return;
        }
        let ending = async {
            self.shutdown().await?;
            let mut buffer = [0; 8 << 10];
            // Nobody wants to know what they say.
            while self.read(&mut buffer).await? > 0 {}
            io::Result::Ok(())
        };
        // It may have gone already.
        drop(timeout(LINGER, ending).await);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Gives up when what waits has waited too long.
    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: impl FnOnce(Pin<&mut Box<dyn Duplex>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = written(Pin::new(&mut self.stream), context) {
            self.taking = None;
            return Poll::Ready(done);
        }
        let taking = self.taking.get_or_insert_with(|| Box::pin(sleep(TAKING)));
        ready!(taking.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.was_heard() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let mut line = self.line();
        line.timed(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.line();
        line.timed(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.was_heard() {
            return Poll::Ready(Ok(()));
        }
        let mut line = self.line();
        line.timed(context, AsyncWrite::poll_shutdown)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("heard", &self.was_heard())
            .finish_non_exhaustive()
    }
}
