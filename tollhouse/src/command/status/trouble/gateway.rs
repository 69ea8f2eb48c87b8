//! The problems of a gateway.

use contract::rejection::Blame;
use contract::trouble::Trouble;
use serde_json::{Value, json};

use super::{items, of_tasks, text, told};
use crate::output::moment;

/// The control plane's heartbeat comes every second.
const SILENT_SECONDS_MAX: i64 = 5;

/// A clock that is further off than this is not synchronised.
const CLOCK_OFF_MILLISECONDS_MAX: i64 = 5_000;

/// From this difference on, services refuse the gateway's identities, if the gateway's clock is wrong.
const CLOCKS_APART_MILLISECONDS_MAX: i64 = 60_000;

/// A certificate should have been renewed before this part of its lifetime is left.
const LIFETIME_LEFT_MIN: f64 = 0.25;

/// A process of a gateway, as the control plane names it; without the process id if it does not answer.
pub(super) fn name(edge: &Value) -> String {
    let process = edge.get("node").and_then(Value::as_str).map(|node| format!("/{node}")).unwrap_or_default();
    format!("{}{process} ({})", text(edge, "gateway"), text(edge, "address"))
}

/// The problems of a gateway's replica.
pub(super) fn not_taken(edge: &Value) -> Option<&str> {
    edge.get("replica_refuses").and_then(Value::as_str)
}

fn of_clocks(edge: &Value, name: &str, found: &mut Vec<Trouble>) {
    let behind = edge.get("clock_behind_milliseconds").and_then(Value::as_i64).unwrap_or(0);
    if behind.abs() > CLOCK_OFF_MILLISECONDS_MAX {
        let how = if behind > 0 { "behind" } else { "ahead" };
        found.push(Trouble::of_platform(
            format!(
                "the clock of gateway {name} is {} s {how}, by the quota store and the control plane",
                behind.abs() / 1_000
            ),
            "start NTP on its machine, and let it set the clock",
        ));
    }
    for (clock, words) in [("quota_store", "the quota store"), ("control_plane", "the control plane")] {
        let off = edge.pointer(&format!("/clocks_off_milliseconds/{clock}")).and_then(Value::as_i64).unwrap_or(0);
        if off.abs() > CLOCKS_APART_MILLISECONDS_MAX {
            found.push(Trouble::of_platform(
                format!("the clocks of gateway {name} and of {words} differ by {} s", off.abs() / 1_000),
                "start NTP on the machine with the wrong clock, and let it set the clock",
            ));
        }
    }
}

fn of_quota_store(edge: &Value, name: &str, found: &mut Vec<Trouble>) {
    let said = |field: &str| edge.pointer(&format!("/quota/{field}")).and_then(Value::as_str);
    let trouble = said("store_trouble");
    let problem = match said("mode") {
        Some(mode @ ("share" | "deny" | "allow")) => {
            let why = trouble.unwrap_or("it does not answer");
            format!("gateway {name} counts without the quota store ({mode}): {why}")
        }
        _ => match trouble {
            Some(trouble) => format!(
                "gateway {name} gets errors from the quota store, and bans may not reach the other gateways: {trouble}"
            ),
            None => return,
        },
    };
    let step = said("store_remedy").unwrap_or("start the quota store, or repair the network to it");
    found.push(Trouble::of_platform(problem, step));
}

/// Whether a gateway serves, and if not, why.
fn of_readiness(edge: &Value, name: &str, found: &mut Vec<Trouble>) {
    let (problem, step) = if edge.get("draining") == Some(&json!(true)) {
        ("is out of rotation", format!("run `tollhouse drain {} --resume` to bring it back", text(edge, "node")))
    } else if edge.get("unregistered") == Some(&json!("held")) {
        let step = "start the control plane, or see serve_before_registered in docs/operator/running.md";
        (
            "was shut down gracefully, or its data directory was copied: it serves nothing until it reaches the control plane",
            step.to_owned(),
        )
    } else if edge.get("ready") == Some(&json!(false)) {
        ("is not ready", "see its log; without a replica it needs the control plane".to_owned())
    } else {
        return;
    };
    found.push(Trouble::of_platform(format!("gateway {name} {problem}"), step));
}

/// Every problem of a gateway.
pub(super) fn all_of(edge: &Value, found: &mut Vec<Trouble>) {
    let name = name(edge);
    if let Some(reason) = edge.get("unreachable").and_then(Value::as_str) {
        let step = "start it, or repair the network to its admin listener";
        found.push(Trouble::of_platform(format!("gateway {name} does not answer: {reason}"), step));
        return;
    }
    of_readiness(edge, &name, found);
    if edge.get("unregistered") == Some(&json!("served")) {
        found.push(Trouble::of_platform(
            format!(
                "gateway {name} serves the replica from its graceful shutdown or copy (feed.serve_before_registered): it \
                 still serves everything withdrawn since, and no withdrawal waits for it"
            ),
            "start the control plane, and remove the setting",
        ));
    }
    of_quota_store(edge, &name, found);
    if let Some(why) = not_taken(edge) {
        let has_nothing = edge.get("revision") == Some(&json!(0));
        let how = if has_nothing { "has no replica to serve" } else { "serves its previous replica" };
        found.push(Trouble::of_platform(format!("gateway {name} {how}: {why}"), text(edge, "replica_remedy")));
    }
    of_clocks(edge, &name, found);
    let now = edge.get("now").and_then(Value::as_i64);
    let last = edge.get("feed_received_at").and_then(Value::as_i64);
    let silence = match now.zip(last) {
        // The control plane was reached; its data was refused.
        Some((_, 0)) if not_taken(edge).is_some() => None,
        Some((_, 0)) => Some("has received nothing from the control plane since its start".to_owned()),
        Some((now, last)) if now - last > SILENT_SECONDS_MAX => {
            Some(format!("received nothing from the control plane for {} seconds", now - last))
        }
        _ => None,
    };
    if let Some(silence) = silence {
        let step = "start the domains-service, or correct feed.url, the network or the credential of this gateway";
        found.push(Trouble::of_platform(format!("gateway {name} {silence}"), step));
    }
    of_upstreams(edge, &name, found);
    of_certificates(edge, &name, found);
    for file in items(edge, "/damaged_files").filter_map(Value::as_str) {
        found.push(Trouble::of_platform(
            format!("gateway {name} found a damaged file in its data directory and started without it"),
            format!("check the disk, then remove {file}"),
        ));
    }
    if let Some(reason) = edge.get("settings_refused").and_then(Value::as_str) {
        found.push(Trouble::of_platform(
            format!("gateway {name} refuses its changed settings: {reason}. Those in force stay"),
            "correct the file; `tollhouse check-config` lists its mistakes",
        ));
    }
    of_tasks(&format!("gateway {name}"), edge, found);
    if let Some(dropped @ 1..) = edge.get("log_lines_dropped").and_then(Value::as_i64) {
        found.push(Trouble::of_platform(
            format!("gateway {name} has dropped {dropped} log lines since it started, some in the last ten minutes"),
            "check the reader of its output, and the disk of the log",
        ));
    }
}

fn of_upstreams(edge: &Value, name: &str, found: &mut Vec<Trouble>) {
    for upstream in items(edge, "/upstreams") {
        let (which, figure) = (text(upstream, "name"), |field: &str| upstream.get(field).and_then(Value::as_u64));
        if upstream.get("insecure") == Some(&json!(true)) {
            found.push(Trouble::of_platform(
                format!("INSECURE: gateway {name} does not verify the certificate of upstream {which}"),
                format!("set ca_certificate_file and remove `insecure` under [upstreams.{which}.tls]"),
            ));
        }
        let (up, all) = (figure("up").unwrap_or(0), figure("endpoints").unwrap_or(0));
        if up < all || all == 0 {
            let reason = upstream.get("failing_because").and_then(Value::as_str);
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            found.push(Trouble {
                problem: format!("gateway {name} reaches {up} of {all} addresses of upstream {which}{reason}"),
                who_must_act: Blame::Upstream,
                what_to_do: format!("start the service, or correct endpoints under [upstreams.{which}]"),
            });
        }
    }
}

fn of_certificates(edge: &Value, name: &str, found: &mut Vec<Trouble>) {
    for fault in items(edge, "/platform_certificate_faults").chain(items(edge, "/listener_certificate_faults")) {
        found.push(told(&format!("gateway {name}"), fault));
    }
    for refused in items(edge, "/unusable_certificates") {
        let (hostname, reason) = (text(refused, "hostname"), text(refused, "reason"));
        found.push(Trouble::of_platform(
            format!(
                "gateway {name} cannot use the newest certificate of {hostname} and keeps the previous one: {reason}"
            ),
            format!("remove {hostname} and add it again (`tollhouse domain`), for a new certificate"),
        ));
    }
    for certificate in items(edge, "/certificates") {
        let left = certificate.get("lifetime_left").and_then(Value::as_f64).unwrap_or(1.0);
        if left < LIFETIME_LEFT_MIN {
            let host = text(certificate, "host");
            let ends = certificate.get("ends_at").and_then(Value::as_i64).and_then(moment).unwrap_or_default();
            found.push(Trouble::of_platform(
                format!("the certificate of {host} has {:.0} % of its lifetime left, until {ends}", left * 100.0),
                if certificate.get("kind") == Some(&json!("platform")) {
                    "replace the files of tls.platform_certificate_file and tls.platform_key_file".to_owned()
                } else {
                    format!("`tollhouse domain show PROJECT {host}` says why it was not renewed and who must act")
                },
            ));
        }
    }
}
