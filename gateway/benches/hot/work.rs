//! The functions that every request passes, each on input of the usual kind. `hot` times them, `instructions` counts.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::{Clock, SystemClock};
use chassis::logs::Logs;
use contract::hostname::Hostname;
use contract::key::{ApiKey, Environment, KeyId, PresentedKey, Scopes};
use contract::keyring::Generation;
use contract::plan::{Limits, Plan};
use contract::project::{Access, Project, ProjectId, ProjectUid};
use contract::time::UnixSeconds;
use gateway::fuzzing::{KnownRequest, Telemetry};
use listener::head::{HeadLimits, HeadReader};
use listener::{Addresses, Connection};
use pingora_http::RequestHeader;
use quota::Quota;
use quota::settings::QuotaSettings;
use quota::store::memory::MemoryStore;

/// A browser's request for a small resource.
const HEAD: &[u8] = b"GET /v1/store/orders?status=shipped HTTP/1.1\r\n\
Host: demo-pro.tollhouse.localhost:8443\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: application/json\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-GB,en;q=0.5\r\n\
Authorization: Bearer th_live_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL\r\n\
\r\n";

/// A service's response.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Content-Type: application/json\r\n\
Content-Length: 1024\r\n\
Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
ETag: \"5f3759df\"\r\n\
\r\n";

/// A function under measurement: its name and one call of it.
pub(crate) type Work = (&'static str, Box<dyn FnMut()>);

/// A request whose caller is known and charged.
struct Sample {
    known: KnownRequest,
    connection: Arc<Connection>,
    request: RequestHeader,
}

fn sample(quota: &Quota, runtime: &tokio::runtime::Runtime) -> anyhow::Result<Sample> {
    let host: Hostname = Hostname::parse("demo-pro.tollhouse.localhost")?;
    let id: ProjectId = "demo-pro".parse()?;
    let uid = ProjectUid::from_random([5; 16]);
    let limits = Limits::new(u32::MAX, u32::MAX).context("limits")?;
    let project = Arc::new(Project {
        id: id.clone(),
        uid: uid.clone(),
        plan: Plan::Pro,
        limits,
        access: Access::Key,
        upstream: "orders".parse()?,
        suspended: false,
        browsers: contract::browsers::Browsers::default(),
    });
    let presented = PresentedKey::generate(Environment::Live, &[9; 30]);
    let key = Arc::new(ApiKey {
        digest: presented.digest(),
        id: KeyId::from_random([7; 10]),
        project: id.clone(),
        project_uid: uid.clone(),
        environment: Environment::Live,
        scopes: Scopes::all(),
        expires_at: None,
    });
    let client: SocketAddr = "203.0.113.195:50000".parse()?;
    let ends = Addresses { client, peer: client, local: "192.0.2.1:443".parse()? };
    let connection = Arc::new(Connection::unattached(ends));
    let allowances = runtime
        .block_on(quota.charge(&uid, limits, &key.id))
        .map_err(|error| anyhow::anyhow!("the charge failed: {error:?}"))?;
    let generation = Generation { number: 1, signs_from: UnixSeconds(0), identity: [3; 32], tickets: [4; 32] };
    let known = KnownRequest::new(host.clone(), project, key, allowances, generation)?;
    let mut request = RequestHeader::build("GET", b"/v1/store/orders?status=shipped", None)?;
    request.insert_header("Host", host.as_str())?;
    request.insert_header("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")?;
    request.insert_header("Accept", "application/json")?;
    request.insert_header("Accept-Encoding", "gzip, deflate, br, zstd")?;
    request.insert_header("Authorization", presented.reveal())?;
    Ok(Sample { known, connection, request })
}

/// All of them. The log goes nowhere, the ledger is the one in memory.
pub(crate) fn all() -> anyhow::Result<Vec<Work>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone(), 1_000));
    let quota = Quota::new(store, QuotaSettings::new(1), clock);
    let Sample { known, connection, request } = sample(&quota, &runtime)?;
    let known = Arc::new(known);

    let limits = HeadLimits::default();
    let head = move || {
        let _ = black_box(HeadReader::default().advance(black_box(HEAD), &limits));
    };
    let host = || {
        let _ = black_box(Hostname::from_ascii(black_box("Demo-Pro.tollhouse.localhost")));
    };
    let presented = PresentedKey::generate(Environment::Live, &[9; 30]);
    let digest = move || {
        let _ = black_box(PresentedKey::parse(black_box(presented.reveal())).map(|key| key.digest()));
    };
    let (hot, plan_limits, key_id) =
        ("hot".parse()?, Limits::new(u32::MAX, u32::MAX).context("limits")?, KeyId::from_random([7; 10]));
    let charge = move || {
        let _ = black_box(runtime.block_on(quota.charge(&hot, plan_limits, &key_id)));
    };
    let sent = known.clone();
    let rewrite = move || {
        let mut head = request.clone();
        let _ = black_box(sent.rewrite(&mut head, &connection));
    };
    let (shown, refused) = (known.clone(), known.clone());
    let respond = move || {
        let _ = black_box(shown.client_head(black_box(RESPONSE)));
    };
    let refuse = move || {
        let _ = black_box(refused.refusal_head());
    };
    let registry = chassis::metrics::Registry::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let logs = Logs::writer_only(std::io::sink())?;
    let telemetry = Telemetry::new(&registry, logs.lines(), clock, "gw-0123456789ab", chassis::trace::Tracer::off())?;
    let finish = move || {
        // The writer's thread lives as long as this.
        let _ = &logs;
        known.finish(&telemetry);
    };
    Ok(vec![
        ("head gate", Box::new(head)),
        ("host", Box::new(host)),
        ("key", Box::new(digest)),
        ("charge", Box::new(charge)),
        ("request head for the upstream", Box::new(rewrite)),
        ("response head for the client", Box::new(respond)),
        ("refusal for the client", Box::new(refuse)),
        ("metrics and log line", Box::new(finish)),
    ])
}
