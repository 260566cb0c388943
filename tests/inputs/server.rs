//! A server on this machine that answers as a test says, and the requests that the tests send to it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::strategy::Strategy;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// A limit that is not reached on this machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The answer to a request.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: "Content-Type: application/json\r\n".into(), body: body.into() }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}

type Answers = Arc<dyn Fn(&str) -> Answer + Send + Sync>;

/// A server that closes the connection after each answer.
pub struct Server {
    pub address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
}

impl Server {
    pub async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of this machine");
        let address = listener.local_addr().expect("it has an address");
        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Arc::new(|_| Answer::json(500, ""))));
        let known = answers.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let answers = known.lock().expect("nobody panics with it").clone();
                tokio::spawn(async move {
                    let mut request = vec![0; 65_536];
                    let length = connection.read(&mut request).await.unwrap_or(0);
                    let request = String::from_utf8_lossy(&request[..length]);
                    let Answer { status, headers, body } = answers(request.lines().next().unwrap_or_default());
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 {status} x\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
                    );
                    let _ = connection.write_all(&[head.as_bytes(), &body].concat()).await;
                });
            }
        });
        Self { address, answers }
    }

    /// Sets what it answers from now on, by the first line of the request.
    pub fn answers(&self, answers: impl Fn(&str) -> Answer + Send + Sync + 'static) {
        *self.answers.lock().expect("nobody panics with it") = Arc::new(answers);
    }

    pub fn always(&self, answer: Answer) {
        self.answers(move |_| answer.clone());
    }

    /// Makes a client that takes it for an API server.
    pub fn cluster(&self) -> kube::Client {
        let uri = format!("http://{}", self.address).parse().expect("it is a URI");
        let mut config = kube::Config::new(uri);
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client can be made")
    }

    /// Makes a client that takes it for Consul.
    pub fn consul(&self) -> lictor_consul::Client {
        let settings = lictor_consul::Settings::new(format!("http://{}", self.address));
        lictor_consul::Client::new(&settings).expect("a client can be made")
    }
}

/// Runs a test with such a server.
pub struct Lab {
    runtime: Runtime,
    pub server: Server,
}

impl Lab {
    pub fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::start());
        Self { runtime, server }
    }

    /// Runs `test` with `cases` inputs.
    pub fn check<S: Strategy, F: Future<Output = TestCaseResult>>(
        &self,
        cases: u32,
        inputs: &S,
        test: impl Fn(S::Value) -> F,
    ) {
        let mut runner = TestRunner::new(crate::config::config(cases));
        let run =
            |input| self.runtime.block_on(async { tokio::time::timeout(LIMIT, test(input)).await.expect("no answer") });
        if let Err(failure) = runner.run(inputs, run) {
            panic!("{failure}\n{runner}");
        }
    }
}

impl Lab {
    /// Runs this within the server's runtime.
    pub fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        make()
    }
}
