//! Agents and a model over real TLS. Certificates are made by `openssl`.
#![cfg(feature = "tls")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]
#![allow(clippy::disallowed_methods, reason = "a server has tasks of its own")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deedbook::{Deedbook, Retry};
use deedbook_agent::{
    Agent, Declaration, DynTool, Effect, Opening, Pieces, Reply, Schema, Terms, Toolbox, TurnEnd,
};
use deedbook_model_script::{Script, serve};
use deedbook_openai::{Misfit, OpenAi};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

const KEY: &str = "sk-hidden-in-tls";

/// A CA of our own.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let config = "[req]\ndistinguished_name = none\nprompt = no\n[none]\n\
            [ca]\nbasicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign\n";
        fs::write(made.file("openssl.cnf"), config).unwrap();
        made.openssl(&format!(
            "req -x509 -config openssl.cnf -extensions ca -subj /CN=house-ca {NEW_KEY} \
             -keyout ca.key -out ca.pem -days 2"
        ));
        made
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let done = command.args(arguments.split_whitespace()).current_dir(self.0.path()).output();
        let done = done.expect("these tests need the program `openssl`");
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// What a server of this name shows.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        fs::write(self.file("san.cnf"), format!("subjectAltName = DNS:{name}\n")).unwrap();
        self.openssl(&format!(
            "req -new -config openssl.cnf -subj /CN=server {NEW_KEY} -keyout key.pem -out asked.pem"
        ));
        self.openssl(
            "x509 -req -in asked.pem -CA ca.pem -CAkey ca.key -set_serial 7 -days 2 \
             -extfile san.cnf -out server.pem",
        );
        let certificate = CertificateDer::from_pem_file(self.file("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("key.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

type Heard = Arc<Mutex<Vec<u8>>>;

/// TLS in front of a server that has none, with what whoever reads along hears, and what the
/// server does.
struct Front {
    port: u16,
    outside: Heard,
    inside: Heard,
    connections: Arc<AtomicUsize>,
    _running: JoinSet<()>,
}

impl Front {
    /// Without an acceptor, everything is in the clear.
    async fn new(acceptor: Option<TlsAcceptor>, behind: &str) -> Self {
        let behind = behind.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
        let behind = behind.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (outside, inside) = (Heard::default(), Heard::default());
        let connections = Arc::new(AtomicUsize::new(0));
        let mut running = JoinSet::new();
        let heard = (outside.clone(), inside.clone(), connections.clone());
        running.spawn(async move {
            let (outside, inside, connections) = heard;
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(&behind).await.unwrap();
                let (outside, inside) = (outside.clone(), inside.clone());
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let (near, far) = tokio::io::duplex(1 << 16);
                    tokio::spawn(passed(stream, near, outside));
                    // A client that hangs up is what some tests are about.
                    match acceptor {
                        None => passed(far, server, inside).await,
                        Some(acceptor) => {
                            if let Ok(clear) = acceptor.accept(far).await {
                                passed(clear, server, inside).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, outside, inside, connections, _running: running }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/v1", self.port)
    }

    fn heard(&self) -> (String, String) {
        let text = |heard: &Heard| String::from_utf8_lossy(&heard.lock().unwrap()).into_owned();
        (text(&self.outside), text(&self.inside))
    }
}

/// Passes on what the two say, and writes down what the first does.
async fn passed<A, B>(from: A, to: B, heard: Heard)
where
    A: AsyncRead + AsyncWrite + Send + 'static,
    B: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut said, mut back) = split(from);
    let (mut answered, mut on) = split(to);
    let answers = tokio::spawn(async move {
        let _ = copy(&mut answered, &mut back).await;
        let _ = back.shutdown().await;
    });
    let mut bytes = vec![0; 4096];
    while let Ok(length @ 1..) = said.read(&mut bytes).await {
        heard.lock().unwrap().extend_from_slice(&bytes[..length]);
        if on.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
    let _ = on.shutdown().await;
    let _ = answers.await;
}

async fn plays(lines: Value) -> deedbook_model_script::Server {
    let script = json!({"conversations": [{"lines": lines}]});
    serve(serde_json::from_value::<Script>(script).unwrap(), 0).await.unwrap()
}

/// What an agent with this model says, and how often it refunded.
async fn run(model: OpenAi, pieces: Pieces) -> (Reply, usize) {
    let refunds = Arc::new(AtomicUsize::new(0));
    let counted = refunds.clone();
    let schema =
        Schema::new(json!({"type": "object", "properties": {"order": {"type": "string"}}}));
    let declaration = Declaration { name: "refund".into(), description: "Refunds.".into(), schema };
    let effect = Effect::idempotent();
    let tool = DynTool::new(declaration, effect, Terms::new(), move |_, args: Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!({"refunded": args["order"]})) }
    });
    let retry = Retry::attempts(2).first(Duration::from_millis(1));
    let agent = Agent::builder(model).tools(Toolbox::new().with_dyn(tool)).model_retry(retry);
    let agent = agent.pieces(pieces).build().unwrap();
    let book = Deedbook::memory().host(agent).start().await.unwrap();
    let ended = book.run::<Agent>("t", Opening::once("go")).await.unwrap();
    book.shutdown().await.unwrap();
    (ended.last.unwrap(), refunds.load(Ordering::SeqCst))
}

fn model(url: &str) -> OpenAi {
    OpenAi::new(url, "script").unwrap().key(KEY).silent_for(Duration::from_secs(20))
}

/// Why it failed.
async fn fails(model: OpenAi) -> String {
    let (reply, _) = run(model, Pieces::default()).await;
    let TurnEnd::ModelFailed { code, message } = reply.end else { panic!("{reply:?}") };
    assert_eq!(code, "connection", "{message}");
    message
}

#[tokio::test]
async fn a_chat_with_tools_goes_over_tls_and_the_key_is_seen_inside_only() {
    let authority = Authority::new();
    for streams in [true, false] {
        let call = || json!({"id": "c", "name": "refund", "arguments": {"order": "ORD-4821"}});
        let server = plays(json!([
            {"text": "Let me see.", "calls": [call(), call()]},
            {"text": "It is on its way, in a stream of many pieces.", "faults": [{"cut_after": 2}]},
        ]))
        .await;
        let front = Front::new(Some(authority.acceptor("localhost")), &server.url()).await;
        let model = model(&front.url("localhost")).streams(streams);
        let model = model.root_certificates_file(authority.file("ca.pem")).unwrap();
        let pieces = Arc::new(Mutex::new(Vec::new()));
        let listener = pieces.clone();
        let pieces_to = Pieces::to(move |piece| listener.lock().unwrap().push(piece.to_owned()));
        let (reply, refunds) = run(model, pieces_to).await;
        assert_eq!(reply.text, "It is on its way, in a stream of many pieces.", "{reply:?}");
        assert_eq!((refunds, server.requests()), (1, 3));
        assert_eq!(pieces.lock().unwrap().len() > 4, streams);
        let (outside, inside) = front.heard();
        assert!(inside.contains(&format!("Bearer {KEY}")) && inside.contains("ORD-4821"));
        assert!(!outside.contains(KEY) && !outside.contains("ORD-4821") && outside.len() > 1000);
    }
}

#[tokio::test]
async fn whoever_is_not_trusted_is_told_nothing() {
    let authority = Authority::new();
    let server = plays(json!([{"text": "never"}])).await;
    let front = Front::new(Some(authority.acceptor("localhost")), &server.url()).await;
    let message = fails(model(&front.url("localhost"))).await;
    assert!(message.contains("no request was sent to localhost: its certificate"), "{message}");
    assert!(message.contains("UnknownIssuer") && message.contains("SSL_CERT_FILE"), "{message}");
    // A CA of the same name, which has signed nothing of this.
    let stranger = Authority::new();
    let other = model(&front.url("localhost")).root_certificates_file(stranger.file("ca.pem"));
    let message = fails(other.unwrap()).await;
    assert!(message.contains("is not accepted: BadSignature"), "{message}");

    let elsewhere = Front::new(Some(authority.acceptor("other.example")), &server.url()).await;
    for host in ["localhost", "127.0.0.1"] {
        let model = model(&elsewhere.url(host)).root_certificates_file(authority.file("ca.pem"));
        let message = fails(model.unwrap()).await;
        assert!(message.contains(&format!("no request was sent to {host}: ")), "{message}");
        assert!(message.contains("other.example"), "{message}");
    }

    // Whoever asks again, asks again: nothing is in doubt.
    assert_eq!(front.connections.load(Ordering::SeqCst), 4);
    assert_eq!(server.requests(), 0);
    for front in [front, elsewhere] {
        let (outside, inside) = front.heard();
        assert!(inside.is_empty() && !outside.contains(KEY), "{inside}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_told_the_key() {
    let server = plays(json!([{"text": "never"}])).await;
    let front = Front::new(None, &server.url()).await;
    let message = fails(model(&front.url("localhost"))).await;
    assert!(
        message.contains("no request was sent to localhost: it does not speak TLS"),
        "{message}"
    );
    let (outside, inside) = front.heard();
    assert!(!outside.is_empty() && !outside.contains(KEY) && !inside.contains(KEY));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let model = model(&url).connect_within(Duration::from_millis(100));
    let message = fails(model).await;
    assert!(message.contains("no secure connection within 100ms"), "{message}");
}

#[test]
fn root_certificates_that_are_none_are_named_with_the_cause() {
    let authority = Authority::new();
    let model = || OpenAi::new("https://localhost/v1", "m").unwrap();
    let misfit = |made: Result<OpenAi, Misfit>| {
        let error = made.unwrap_err();
        assert!(matches!(error, Misfit::Roots { .. }), "{error:?}");
        error.to_string()
    };
    let gone = Path::new("/nowhere/ca.pem");
    let text = misfit(model().root_certificates_file(gone));
    assert!(text.contains("/nowhere/ca.pem") && text.contains("No such file"), "{text}");
    // A key is no certificate.
    let text = misfit(model().root_certificates_file(authority.file("ca.key")));
    assert!(text.contains("ca.key") && text.contains("holds no"), "{text}");
    for (wrong, why) in [
        ("", "holds no"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "none of its 1"),
        ("-----BEGIN CERTIFICATE-----\n%%\n-----END CERTIFICATE-----\n", ""),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", ""),
    ] {
        let text = misfit(model().root_certificates(wrong));
        assert!(text.contains("the given PEM: ") && text.contains(why), "{text}");
    }
    // Several, with what people write between them.
    let pem = fs::read_to_string(authority.file("ca.pem")).unwrap();
    assert!(model().root_certificates(format!("# ours\n{pem}\n# and\n{pem}")).is_ok());
}

/// What a process is given when it starts, so this starts another one: with these, it asks.
#[tokio::test]
async fn a_file_of_root_certificates_is_taken_from_the_environment() {
    if std::env::var_os("OPENAI_MODEL").is_some_and(|model| model == "in-another-process") {
        let (reply, _) = run(OpenAi::from_env().unwrap(), Pieces::default()).await;
        assert_eq!(reply.text, "done", "{reply:?}");
        return;
    }
    let authority = Authority::new();
    let server = plays(json!([{"text": "done"}])).await;
    let front = Front::new(Some(authority.acceptor("localhost")), &server.url()).await;
    let ask = async |url: String, file: PathBuf| {
        let name = "a_file_of_root_certificates_is_taken_from_the_environment";
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env("OPENAI_MODEL", "in-another-process");
        command.env("OPENAI_BASE_URL", url).env("SSL_CERT_FILE", file);
        let done = command.output().await.unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (ca, gone) = (authority.file("ca.pem"), authority.file("gone.pem"));
    let (fine, said) = ask(front.url("localhost"), ca).await;
    assert!(fine && server.requests() == 1, "{said}");
    let (fine, said) = ask(front.url("localhost"), gone.clone()).await;
    assert!(!fine && said.contains("gone.pem") && said.contains("Roots"), "{said}");
    // Nobody needs it for what is in the clear.
    let (fine, said) = ask(server.url(), gone).await;
    assert!(fine && server.requests() == 2, "{said}");
}
