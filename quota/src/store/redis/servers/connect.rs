//! Finds the masters and connects to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisFuture, TlsCertificates,
    Value,
};

use super::slots::{SLOTS, tag_within};
use super::{Link, SERVERS_MAX, Script, local_key};
use crate::store::StoreOutage;
use crate::store::redis::settings::{RedisAddress, RedisMode, RedisSettings};
use chassis::names;

/// The longest time for one connection after its address is known, and for each query about the server.
const CONNECT_MAX: Duration = Duration::from_millis(250);
/// Commands queued for one connection.
const PIPELINE_MAX: usize = 1_024;
/// The oldest supported version: its scripts and hash commands are required.
const OLDEST: (u32, u32) = (6, 2);
/// The key that stores the incarnation of a server's data.
const MEMORY_KEY: &str = "tollhouse:memory";

const STATEMENT: &str = include_str!("../statement.lua");
const HEARTBEAT: &str = include_str!("../heartbeat.lua");

type Slots = BTreeMap<u16, usize>;

/// The masters and their slots. An unreachable master of a Cluster is `None`; outside of a Cluster there are no slots.
type ConnectedServers = (Vec<Option<Arc<Link>>>, Option<Slots>);

/// Connects to every master.
pub(super) async fn all(settings: &RedisSettings, round: u64) -> Result<ConnectedServers, StoreOutage> {
    let mut last = StoreOutage::Unreachable("no address".to_owned());
    for address in &settings.addresses {
        let found = match settings.mode {
            RedisMode::Standalone => link(settings, address, String::new(), Some(round)).await.map(single_server),
            RedisMode::Sentinel => through_sentinel(settings, address, round).await.map(single_server),
            RedisMode::Cluster => cluster(settings, address, round).await,
        };
        match found {
            Ok(found) => return Ok(found),
            Err(outage) => last = outage,
        }
    }
    Err(last)
}

fn single_server(link: Arc<Link>) -> ConnectedServers {
    (vec![Some(link)], None)
}

async fn through_sentinel(
    settings: &RedisSettings,
    sentinel: &RedisAddress,
    round: u64,
) -> Result<Arc<Link>, StoreOutage> {
    // Sentinels do not use the Redis user and password.
    let bare = RedisSettings { username: None, password: None, ..settings.clone() };
    let (_, mut connection) = connect(&bare, sentinel).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(&settings.master_name);
    let answer: Option<(String, u16)> = question.query_async(&mut connection).await.map_err(unreachable)?;
    let (host, port) = answer
        .ok_or_else(|| StoreOutage::Refused(format!("the sentinels have no master named {}", settings.master_name)))?;
    let master = RedisAddress { host, port, tls: sentinel.tls };
    link(settings, &master, String::new(), Some(round)).await
}

async fn cluster(settings: &RedisSettings, seed: &RedisAddress, round: u64) -> Result<ConnectedServers, StoreOutage> {
    let (_, mut connection) = connect(settings, seed).await?;
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answer: Value = question.query_async(&mut connection).await.map_err(unreachable)?;
    let ranges = ranges(&answer, seed)?;
    let mut masters: Vec<RedisAddress> = Vec::new();
    let mut slots = Slots::new();
    for (_, last, master) in &ranges {
        let known = masters.iter().position(|one| one == master);
        let shard = known.unwrap_or_else(|| {
            masters.push(master.clone());
            masters.len() - 1
        });
        slots.insert(*last, shard);
    }
    let covered: u32 = ranges.iter().map(|(first, last, _)| u32::from(*last - *first) + 1).sum();
    if covered != u32::from(SLOTS) || masters.len() > SERVERS_MAX {
        return Err(StoreOutage::Refused(format!("the Cluster has servers for {covered} of {SLOTS} slots")));
    }
    let owner = |slot: u16| slots.range(slot..).next().map(|(_, shard)| *shard);
    let mut links = Vec::with_capacity(masters.len());
    for (shard, master) in masters.iter().enumerate() {
        let tag = tag_within(|slot| owner(slot) == Some(shard)).unwrap_or_default();
        links.push(member(settings, master, tag, round).await);
    }
    if links.iter().all(Option::is_none) {
        return Err(StoreOutage::Unreachable("no master of the Cluster answers".to_owned()));
    }
    Ok((links, Some(slots)))
}

/// The answer to CLUSTER SLOTS: first and last slot, then the master's address.
fn ranges(answer: &Value, seed: &RedisAddress) -> Result<Vec<(u16, u16, RedisAddress)>, StoreOutage> {
    let foreign = || StoreOutage::Refused("cannot parse the answer to CLUSTER SLOTS".to_owned());
    let Value::Array(rows) = answer else { return Err(foreign()) };
    rows.iter()
        .map(|row| {
            let Value::Array(row) = row else { return Err(foreign()) };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = row.as_slice() else {
                return Err(foreign());
            };
            let [host, Value::Int(port), ..] = master.as_slice() else { return Err(foreign()) };
            let host: Option<String> = redis::from_redis_value(host.clone()).ok().flatten();
            // A server that does not know its own name has the address that was asked.
            let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| seed.host.clone());
            let number = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS).ok_or_else(foreign);
            let (first, last) = (number(first)?, number(last)?);
            let port = u16::try_from(*port).map_err(|_| foreign())?;
            if first > last {
                return Err(foreign());
            }
            Ok((first, last, RedisAddress { host, port, tls: seed.tls }))
        })
        .collect()
}

/// Connects to one server of a Cluster; `None` if it cannot be used.
async fn member(settings: &RedisSettings, address: &RedisAddress, tag: String, round: u64) -> Option<Arc<Link>> {
    link(settings, address, tag, Some(round)).await.inspect_err(|outage| warn_unusable(address, outage)).ok()
}

/// Logs that a server of a Cluster cannot be used.
pub(super) fn warn_unusable(address: &RedisAddress, outage: &StoreOutage) {
    tracing::warn!(
        host = address.host, port = address.port, reason = %outage,
        "cannot use a server of the quota Cluster; using the others"
    );
}

/// Connects to one server, checks that it is a usable master, and loads the scripts. Without a round, it is a server of
/// a Cluster that receives its first slot.
pub(super) async fn link(
    settings: &RedisSettings,
    address: &RedisAddress,
    tag: String,
    round: Option<u64>,
) -> Result<Arc<Link>, StoreOutage> {
    let (client, mut connection) = connect(settings, address).await?;
    let info: String = redis::cmd("INFO").query_async(&mut connection).await.map_err(unreachable)?;
    let fact = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    if fact("role") != "master" {
        return Err(StoreOutage::Refused(format!("READONLY: {}:{} is not a master", address.host, address.port)));
    }
    if round.is_none() {
        check_serves(&mut connection).await?;
    }
    let version = fact("redis_version");
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let mut parts = version.split('.');
    let version_number = (number(parts.next()), number(parts.next()));
    if version_number < OLDEST {
        return Err(StoreOutage::Refused(format!("Redis {version} is too old; use 6.2 or newer, or Valkey")));
    }
    warn_of_eviction(&fact("maxmemory_policy"), &fact("maxmemory"), address);
    // A full server must still be able to execute statements, because a bucket's record has a fixed size.
    let flags = if version_number.0 >= 7 { "#!lua flags=allow-oom,allow-cross-slot-keys\n" } else { "" };
    let statement = script(&mut connection, flags, STATEMENT).await?;
    let heartbeat = script(&mut connection, flags, HEARTBEAT).await?;
    // Shorter than the caller's budget, so that it is known which server did not answer.
    connection.set_response_timeout(settings.call_budget * 9 / 10);
    let memory_key = local_key(MEMORY_KEY, &tag);
    let run_id = fact("run_id");
    tracing::info!(host = address.host, port = address.port, version, run_id, "connected to the quota store (Redis)");
    Ok(Arc::new(Link {
        address: address.clone(),
        connection,
        run_id,
        tag,
        memory_key,
        statement,
        heartbeat,
        round,
        timeouts: AtomicU32::new(0),
        client,
    }))
}

/// Checks that a server of a Cluster serves keys. After a start it refuses all for two seconds. If nodes connected
/// meanwhile, they would repeat their statements too early.
async fn check_serves(connection: &mut MultiplexedConnection) -> Result<(), StoreOutage> {
    let mut nothing = redis::cmd("HDEL");
    nothing.arg(MEMORY_KEY).arg("");
    match nothing.query_async::<Value>(connection).await {
        Err(error) if error.code() != Some("MOVED") => Err(unreachable(error)),
        // It serves if it names the server of the key.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// An evicted bucket restarts a quota from zero.
fn warn_of_eviction(policy: &str, memory_max: &str, address: &RedisAddress) {
    if policy != "noeviction" && memory_max != "0" {
        tracing::error!(
            host = address.host,
            port = address.port,
            policy,
            "the quota's Redis may evict keys, which restarts quotas: set maxmemory-policy noeviction"
        );
    }
}

async fn script(connection: &mut MultiplexedConnection, flags: &str, text: &str) -> Result<Script, StoreOutage> {
    let text = format!("{flags}{text}");
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(&text);
    let digest = load.query_async(connection).await.map_err(unreachable)?;
    Ok(Script { text: text.into(), digest })
}

async fn connect(
    settings: &RedisSettings,
    address: &RedisAddress,
) -> Result<(Client, MultiplexedConnection), StoreOutage> {
    let client = client(settings, address).map_err(unreachable)?;
    // The library would look up the name within the connect timeout, which is shorter than some nameservers need.
    let found = names::look_up(&address.host, address.port).await;
    let known = ResolvedAddresses(
        found.map_err(|error| StoreOutage::Unreachable(format!("{}: {error}", address.host)))?.collect(),
    );
    let config = AsyncConnectionConfig::new()
        .set_dns_resolver(known)
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(CONNECT_MAX))
        .set_pipeline_buffer_size(PIPELINE_MAX);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    // The library's own limit applies to each step.
    let connection = tokio::time::timeout(CONNECT_MAX * 2, connecting).await.map_err(|_| StoreOutage::TimedOut)?;
    Ok((client, connection.map_err(unreachable)?))
}

/// The addresses of the server, looked up before.
struct ResolvedAddresses(Vec<SocketAddr>);

impl AsyncDNSResolver for ResolvedAddresses {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Box::new(self.0.iter().copied()) as _)))
    }
}

fn client(settings: &RedisSettings, address: &RedisAddress) -> redis::RedisResult<Client> {
    let (host, port) = (address.host.clone(), address.port);
    let place = if address.tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    // The library would send a command that older servers do not know and restricted users may not run.
    let mut redis_settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(username) = &settings.username {
        redis_settings = redis_settings.set_username(username);
    }
    if let Some(password) = &settings.password {
        redis_settings = redis_settings.set_password(String::from_utf8_lossy(password.reveal()));
    }
    let tcp = TcpSettings::default().set_nodelay(true);
    let info: ConnectionInfo = redis::IntoConnectionInfo::into_connection_info(place)?
        .set_redis_settings(redis_settings)
        .set_tcp_settings(tcp);
    if address.tls {
        Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: settings.ca_certificate.clone() })
    } else {
        Client::open(info)
    }
}

fn unreachable(error: impl std::borrow::Borrow<redis::RedisError>) -> StoreOutage {
    super::super::explain(error.borrow()).1.err().unwrap_or(StoreOutage::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_cluster_are_read_and_nonsense_is_not() {
        let seed = RedisAddress { host: "seed".to_owned(), port: 7_000, tls: false };
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let row = |first, last, host: &str, port| {
            let master = Value::Array(vec![text(host), Value::Int(port), text("id"), Value::Array(vec![])]);
            Value::Array(vec![Value::Int(first), Value::Int(last), master])
        };
        let read = ranges(&Value::Array(vec![row(0, 8_191, "a", 1), row(8_192, 16_383, "", 2)]), &seed).unwrap();
        let hosts: Vec<_> =
            read.iter().map(|(first, last, one)| (*first, *last, one.host.as_str(), one.port)).collect();
        assert_eq!(hosts, [(0, 8_191, "a", 1), (8_192, 16_383, "seed", 2)]);
        for wrong in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![row(5, 1, "a", 1)]),
            Value::Array(vec![row(0, 16_384, "a", 1)]),
            Value::Array(vec![row(0, 1, "a", 70_000)]),
        ] {
            assert!(ranges(&wrong, &seed).is_err(), "{wrong:?}");
        }
    }
}
