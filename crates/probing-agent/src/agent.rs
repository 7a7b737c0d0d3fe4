//! The agent: its listener, its state, and its end when it is idle.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use probing_client::anyone_probed;
use probing_engine::{Engine, EngineError, QueryLimits};
use probing_proto::agent::{AgentState, Role};
use probing_proto::process::{Pid, Stat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::agent_dir::{Folder, Lock};
use crate::error::AgentError;
use crate::http::connection::Connection;
use crate::http::listener;
use crate::http::refusal::Refused;
use crate::http::request::{ClientConnection, Visitor};
use crate::http::routes;
use crate::security::audit_log::{Actor, AuditLog};
use crate::security::capacity::{Capacity, MAX_TURNS, Permit};
use crate::security::certificate::Certificate;
use crate::security::host_check::Names;
use crate::security::rate_limit::RateLimiter;
use crate::security::tokens::{self, Tokens};
use crate::settings::{Settings, TlsMode};

/// Threads for what never waits.
const WORKERS: usize = 2;
/// For a turn.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Files that it may have open: each conversation with a probe takes two.
const MAX_FILES: u64 = 8192;
/// Connections that the kernel holds until they are accepted; it may allow fewer.
const BACKLOG: i32 = 4096;
/// How often to look whether anybody needs it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// An agent that has its port.
#[derive(Debug)]
pub struct Agent {
    pub(crate) door: RateLimiter,
    pub(crate) tokens: Tokens,
    pub(crate) names: Names,
    audit: AuditLog,
    certificate: Option<Certificate>,
    folder: Folder,
    /// None when it serves only who started it.
    port: Option<Port>,
    engine: OnceLock<Engine>,
    pub(crate) places: Arc<Capacity>,
    used: Mutex<Instant>,
    idle: Duration,
    read_only: bool,
    query_time: Duration,
    query_memory: Option<usize>,
}

/// Where it listens, and that it is its own.
#[derive(Debug)]
struct Port {
    listener: TcpListener,
    address: SocketAddr,
    /// For commands of this machine.
    local: UnixListener,
    _lock: Lock,
}

/// Why an agent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// There was no target and no client for a while.
    Idle,
    /// Somebody told it to, by a signal.
    Signalled,
}

impl Agent {
    /// Takes its port and says so in its folder. Nothing is served yet.
    pub fn start(settings: &Settings) -> Result<Self, AgentError> {
        let folder = Folder::open()?;
        let certificate = certificate(settings, &folder)?;
        let own = folder.token();
        tokens::make(&own)?;
        let files: Vec<&Path> = [&own]
            .into_iter()
            .chain(&settings.token_file)
            .map(PathBuf::as_path)
            .collect();
        let tokens = Tokens::of(&files, settings.token.as_deref(), settings.read_only)?;
        let port = bound(settings.listen, &folder)?;
        let address = port.address;
        let agent = Self {
            certificate,
            ..Self::with(settings, folder, tokens, Some(port))
        };
        let state = AgentState {
            listen: address.to_string(),
            fingerprint: agent.fingerprint(),
            trouble: None,
            ..state(settings)
        };
        agent.folder.set_state(address.port(), &state)?;
        Ok(agent)
    }

    /// For who has started it, over its own input and output. Nothing listens, and nobody needs a token.
    pub fn for_one(settings: &Settings) -> Result<Self, AgentError> {
        let nobody = Tokens::of(&[], None, settings.read_only)?;
        Ok(Self::with(settings, Folder::open()?, nobody, None))
    }

    fn with(settings: &Settings, folder: Folder, tokens: Tokens, port: Option<Port>) -> Self {
        Self {
            door: RateLimiter::new(settings.allow.clone()),
            tokens,
            names: Names::of_this_machine(),
            audit: AuditLog::at(folder.audit()),
            certificate: None,
            port,
            read_only: settings.read_only,
            engine: OnceLock::new(),
            places: Capacity::new(),
            used: Mutex::new(Instant::now()),
            idle: settings.idle,
            query_time: settings.query_time,
            query_memory: settings.query_memory.map(|bytes| bytes as usize),
            folder,
        }
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        Some(self.port.as_ref()?.address)
    }

    /// What its own user may do, whom the kernel names.
    pub(crate) fn own_role(&self) -> Role {
        if self.read_only {
            Role::Observe
        } else {
            Role::Control
        }
    }

    /// Of its certificate; none when it speaks plain text.
    pub fn fingerprint(&self) -> Option<String> {
        let certificate = self.certificate.as_ref();
        certificate.map(|certificate| certificate.fingerprint.to_string())
    }

    /// The tokens that let in.
    pub fn token_file(&self) -> PathBuf {
        self.folder.token()
    }

    /// What was done through it.
    pub fn audit_file(&self) -> PathBuf {
        self.folder.audit()
    }

    /// Serves until it is idle or ended.
    pub fn run(self) -> Result<ExitReason, AgentError> {
        let failed = |source| AgentError::NotServing { source };
        raise_file_limit();
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            // Those who wait for their turn do not need one.
            .max_blocking_threads(MAX_TURNS + WORKERS)
            .thread_name("agent")
            .enable_all()
            .build()
            .map_err(failed)?;
        let agent = Arc::new(self);
        let ended = runtime.block_on(agent.serve()).map_err(failed);
        if let Some(address) = agent.address() {
            agent.folder.clear_state(address.port());
        }
        // What still waits for a target is left behind.
        runtime.shutdown_background();
        ended
    }

    async fn serve(self: &Arc<Self>) -> io::Result<ExitReason> {
        let (told, signal) = UnixStream::pair()?;
        pipe::register(SIGTERM, signal.try_clone()?)?;
        pipe::register(SIGINT, signal)?;
        told.set_nonblocking(true)?;
        let told = tokio::net::UnixStream::from_std(told)?;
        let Some(Port {
            listener, local, ..
        }) = &self.port
        else {
            return self.serve_one().await;
        };
        let (listener, local) = (listener.try_clone()?, local.try_clone()?);
        listener.set_nonblocking(true)?;
        local.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let local = tokio::net::UnixListener::from_std(local)?;
        tokio::select! {
            () = listener::listen(listener, Arc::clone(self)) => Ok(ExitReason::Idle),
            () = listener::listen_here(local, Arc::clone(self)) => Ok(ExitReason::Idle),
            () = self.idle() => Ok(ExitReason::Idle),
            told = told.readable() => told.map(|()| ExitReason::Signalled),
        }
    }

    /// One conversation over input and output, whatever those are.
    async fn serve_one(self: &Arc<Self>) -> io::Result<ExitReason> {
        let (near, far) = UnixStream::pair()?;
        let (mut input, mut output) = (near.try_clone()?, near);
        thread::spawn(move || {
            // Whichever end goes first: then it is over.
            io::copy(&mut io::stdin(), &mut input).ok();
            input.shutdown(Shutdown::Write).ok();
        });
        let writing = thread::spawn(move || {
            #[expect(
                clippy::disallowed_methods,
                reason = "a conversation with a program over SSH"
            )]
            let (mut out, mut buffer) = (io::stdout(), [0; 16 << 10]);
            loop {
                let length = output.read(&mut buffer)?;
                if length == 0 {
                    return io::Result::Ok(());
                }
                // Whoever waits for it does not wait for the end of a line.
                out.write_all(&buffer[..length])?;
                out.flush()?;
            }
        });
        far.set_nonblocking(true)?;
        let far = tokio::net::UnixStream::from_std(far)?;
        let guest = ClientConnection {
            visitor: Visitor::Starter,
            binding: None,
            entrance: self.places.known(),
        };
        listener::converse(Connection::over(far), routes::router(self), guest).await?;
        // It may go on as something else.
        self.places.wait_until_empty().await;
        spawn_blocking(move || drop(writing.join())).await?;
        Ok(ExitReason::Signalled)
    }

    /// Until nobody has needed it for long enough.
    async fn idle(self: &Arc<Self>) {
        loop {
            sleep(LOOK_EVERY.min(self.idle)).await;
            let is_needed =
                !self.places.is_empty() || spawn_blocking(anyone_probed).await.unwrap_or(true);
            if is_needed {
                self.touch();
            }
            let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if used.elapsed() >= self.idle {
                return;
            }
        }
    }

    pub(crate) fn tls(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Somebody needs it.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Started by the first query.
    pub(crate) fn engine(&self) -> Result<&Engine, EngineError> {
        if self.engine.get().is_none() {
            // Whoever comes second drops its own.
            drop(self.engine.set(Engine::start()?));
        }
        Ok(self
            .engine
            .get_or_init(|| unreachable!("it was just started")))
    }

    /// What a query may take.
    pub(crate) fn terms(&self) -> QueryLimits {
        QueryLimits {
            time: Some(self.query_time),
            memory_bytes: self.query_memory,
            ..QueryLimits::default()
        }
    }

    /// Writes down what is about to be done; what cannot be written down is not done.
    pub(crate) fn note(
        &self,
        actor: &Actor,
        action: &str,
        pid: Option<Pid>,
        code: Option<&str>,
    ) -> Result<(), Refused> {
        let noted = self.audit.note(actor, action, pid, code);
        noted.map_err(|error| {
            let words = format!("cannot write the audit log: {error}");
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, words)
                .hint("the agent's private folder must be writable")
        })
    }

    /// Waits until a request of this role may be answered, for a while.
    pub(crate) async fn turn(&self, role: Role) -> Result<Permit, Refused> {
        let turn = timeout(PERMIT_TIMEOUT, self.places.turn(role)).await;
        turn.ok().flatten().ok_or_else(|| {
            let words = "the agent is overloaded";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, words).hint("try again")
        })
    }
}

/// As many files as it may have, up to what it needs.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(MAX_FILES).min(MAX_FILES);
    if limit.current.is_some_and(|current| current < most) {
        let current = Some(most);
        // Then there is room for fewer connections.
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).ok();
    }
}

/// Says in the agent's folder why there is none: for one that nobody watches. `probing list` tells.
pub fn say_trouble(settings: &Settings, error: &AgentError) {
    if matches!(error, AgentError::Runs { .. }) {
        return;
    }
    let state = AgentState {
        trouble: Some(error.to_string()),
        ..state(settings)
    };
    // Where that cannot be said, nothing can.
    if let Ok(folder) = Folder::open() {
        folder.set_state(settings.listen.port(), &state).ok();
    }
}

fn state(settings: &Settings) -> AgentState {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    AgentState {
        pid: Pid(std::process::id()),
        start_ticks: Stat::parse(&stat).map_or(0, |stat| stat.start_ticks),
        listen: settings.listen.to_string(),
        fingerprint: None,
        wanted: settings.wanted,
        trouble: None,
    }
}

fn certificate(settings: &Settings, folder: &Folder) -> Result<Option<Certificate>, AgentError> {
    let listen = settings.listen;
    let is_local = listen.ip().is_loopback();
    match &settings.tls {
        TlsMode::Auto | TlsMode::Off if is_local => Ok(None),
        TlsMode::Off => Err(AgentError::PlainForAll { listen }),
        TlsMode::Auto => Certificate::in_folder(&folder.path()).map(Some),
        TlsMode::Files { certificate, key } => Certificate::of(certificate, key).map(Some),
    }
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // So that a burst of connections does not keep others waiting for a second try.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The port, and the lock that says that it is ours.
fn bound(listen: SocketAddr, folder: &Folder) -> Result<Port, AgentError> {
    let runs = |port: u16| AgentError::Runs {
        port,
        pid: folder.state(port).map(|state| state.pid),
    };
    let not_bound = |source: io::Error| AgentError::NotBound { listen, source };
    let port = listen.port();
    if port == 0 {
        let listener = listening(listen).map_err(not_bound)?;
        let address = listener.local_addr().map_err(not_bound)?;
        let lock = folder.lock(address.port())?;
        let lock = lock.ok_or_else(|| runs(address.port()))?;
        return Ok(Port {
            listener,
            address,
            local: folder.listen(address.port())?,
            _lock: lock,
        });
    }
    // First the lock: who has it decides whether the port is taken by one of ours.
    let lock = folder.lock(port)?.ok_or_else(|| runs(port))?;
    let listener = listening(listen).map_err(not_bound)?;
    Ok(Port {
        listener,
        address: listen,
        local: folder.listen(port)?,
        _lock: lock,
    })
}
