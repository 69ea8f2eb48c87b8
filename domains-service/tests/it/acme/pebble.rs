//! A real authority: Debian's `pebble`, which refuses half of all nonces and waits before it validates.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use chassis::clock::{Clock as _, SystemClock};
use contract::feed::{Effect, Frame};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::collections::HashMap;
use std::sync::Arc;
use tempfile::TempDir;

use super::*;
use domains_service::{AcmeSettings, ChallengeKind};

/// Pebble and its DNS, in which every name points at this machine.
struct Pebble {
    processes: Vec<Child>,
    directory: TempDir,
    port: u16,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Pebble {
    /// With gateways that answer HTTP-01 at this port.
    async fn start(http_port: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("root.pem"), root).unwrap();
        std::fs::write(file("pebble.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(file("pebble.key"), key.serialize_pem()).unwrap();
        let (port, management, dns) = (free_port(), free_port(), free_port());
        let configuration = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": file("pebble.pem"), "privateKey": file("pebble.key"),
            "httpPort": http_port, "tlsPort": free_port(), "ocspResponderURL": "",
            "externalAccountBindingRequired": false, "certificateValidityPeriod": 7_776_000,
        }});
        std::fs::write(file("pebble.json"), configuration.to_string()).unwrap();
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", &format!("127.0.0.1:{dns}")]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-management", ""]);
        let mut pebble = Command::new("pebble");
        pebble.arg("-config").arg(file("pebble.json")).args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        pebble.env("PEBBLE_WFE_NONCEREJECT", "50").env("PEBBLE_AUTHZREUSE", "0").env_remove("PEBBLE_VA_NOSLEEP");
        let processes = [names, pebble].into_iter().map(|mut command| {
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            child.expect("pebble is needed: install the package pebble (./check does)")
        });
        let processes = processes.collect();
        for port in [port, management] {
            eventually(async || {
                let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
                connected.map_err(|error| format!("pebble does not listen: {error}"))
            })
            .await;
        }
        Self { processes, directory, port }
    }

    fn settings(&self) -> AcmeSettings {
        AcmeSettings {
            name: "pebble".to_owned(),
            directory_url: format!("https://127.0.0.1:{}/dir", self.port),
            contact: vec!["mailto:operator@example.com".to_owned()],
            ca_certificate: Some(std::fs::read(self.directory.path().join("root.pem")).unwrap()),
            caa_identity: "pebble.example".to_owned(),
            external_account: None,
            challenges: vec![ChallengeKind::Http01],
            profile: None,
            mirror_limits: false,
            limits: domains_service::Limits::default(),
        }
    }
}

type Answers = Arc<Mutex<HashMap<String, String>>>;

/// A gateway's part in challenges: follows the stream, answers, and reports its revision.
async fn answer_challenges(platform: &Platform, listener: tokio::net::TcpListener) {
    let answers: Answers = Arc::default();
    let router = Router::new()
        .route(
            "/.well-known/acme-challenge/{token}",
            get(|State(answers): State<Answers>, Path(token): Path<String>| async move {
                answers.lock().get(&token).cloned().unwrap_or_default()
            }),
        )
        .with_state(answers.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (client, internal) = (platform.client.clone(), platform.internal.clone());
    let token = platform.gateway().await;
    let mut stream = platform.follow_for(Duration::from_mins(10), &token, "node=test&after=0").await;
    tokio::spawn(async move {
        while let Some(frame) = stream.next().await {
            let applied = match frame {
                Frame::Change(change) => {
                    if let Effect::Put(Entity::Challenge(challenge)) = change.effect {
                        answers.lock().insert(challenge.token, challenge.key_authorization);
                    }
                    (change.revision, change.mark)
                }
                Frame::SnapshotEnd { revision, mark } => (revision, mark),
                _ => continue,
            };
            let (applied, mark) = applied;
            let body = json!({ "node": "test", "applied": applied, "mark": mark, "version": "1" });
            let report = client.post(format!("{internal}/internal/edge/nodes")).bearer_auth(&*token).json(&body);
            let _ = report.send().await;
        }
    });
}

// promise: domains.20
#[tokio::test(flavor = "multi_thread")]
async fn a_real_authority_that_refuses_every_second_nonce_issues_for_every_name() {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let pebble = Pebble::start(listener.local_addr().unwrap().port()).await;
    let ours = Authorities { local: None, public: Vec::new() };
    let bend = Bend {
        authorities: Some(ours),
        acme: vec![pebble.settings()],
        start: SystemClock::new().now().plus(120_000),
        ..Bend::default()
    };
    let platform = Platform::bent(bend).await;
    answer_challenges(&platform, listener).await;
    platform.project("demo", "enterprise").await;
    // Longer than a common name may be.
    let long = format!("{}.{}.long.test", "a".repeat(63), "b".repeat(30));
    let mut names: Vec<String> = (0..12).map(|number| format!("shop{number}.customer.test")).collect();
    names.push(long);
    for name in &names {
        add(&platform, name).await;
    }
    for name in &names {
        let domain = platform.domain_in("demo", name, "active").await;
        assert_eq!((&domain["certificate"]["ca"], &domain["certificate"]["attempts"]), (&json!("pebble"), &json!(0)));
        assert_eq!(domain["certificate"]["key_type"], "ecdsa-p256");
    }
    assert_eq!(open_challenges(&platform).await, 0);
}
