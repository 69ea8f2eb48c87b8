//! Finds the problems in a status, each as a sentence that names its process. Pure, so that every problem has a test.

use serde_json::{Value, json};

/// The control plane's heartbeat comes every second.
const SILENT_SECONDS_MAX: i64 = 5;

/// A clock that is further off than this is not synchronised.
const CLOCK_OFF_MILLISECONDS_MAX: i64 = 5_000;

/// From this difference on, services refuse the gateway's identities, if the gateway's clock is wrong.
const CLOCKS_APART_MILLISECONDS_MAX: i64 = 60_000;

/// A fault of a store that was seen longer ago counts as over.
const RECENT_SECONDS: u64 = 60;

/// A service fetches the trusted keys every second.
const TRUST_SECONDS_MAX: u64 = 60;

/// The codes of a service without its database.
const NO_DATABASE: [&str; 2] = ["storage_unavailable", "storage_full"];

/// A certificate should have been renewed before this part of its lifetime is left.
const LIFETIME_LEFT_MIN: f64 = 0.25;

/// Every problem in the status of all processes.
pub(super) fn find(all: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for edge in items(all, "/edges") {
        of_edge(edge, &mut found);
    }
    of_service("the domains-service", all.get("control"), "trouble", "code", &mut found);
    if let Some(missing @ 1..) = all.pointer("/control/sealed_with_missing").and_then(Value::as_u64) {
        found.push(format!(
            "the domains-service lacks the sealing secret of {missing} private keys or webhook secrets: restore it in sealing_secret_file"
        ));
    }
    of_withdrawals(all.get("withdrawals"), &mut found);
    for refused in items(all, "/control/credential_files_refused") {
        found.push(format!(
            "the domains-service refused the credential file {} when it started: {}",
            text(refused, "file"),
            text(refused, "what_to_do")
        ));
    }
    if let Some(trouble) = all.pointer("/control/revocations_file_trouble").and_then(Value::as_str) {
        found.push(format!("the domains-service: {trouble}"));
    }
    let elsewhere: Vec<&str> = items(all, "/control/gateways_of_another_history").filter_map(Value::as_str).collect();
    if !elsewhere.is_empty() {
        found.push(format!(
            "the domains-service's database lacks changes that these gateways have applied: {}. It went back to an earlier state, or \
             is another database; a gateway that starts with an empty data directory serves that state. See docs/operator/backup.md",
            elsewhere.join(", ")
        ));
    }
    unreadable_rows(all.get("control"), &mut found);
    of_service("the orders-service", all.get("orders"), "store_trouble", "kind", &mut found);
    if let Some(old) =
        all.pointer("/orders/trust_seconds_old").and_then(Value::as_u64).filter(|old| *old > TRUST_SECONDS_MAX)
    {
        found.push(format!(
            "the orders-service has not received the trusted keys from the control plane for {} minutes: it still accepts gateways \
             that were revoked since",
            old / 60
        ));
    }
    let newest = all.pointer("/nodes/revision").and_then(Value::as_u64);
    for edge in items(all, "/edges") {
        let behind =
            newest.zip(edge.get("revision").and_then(Value::as_u64)).map(|(newest, has)| newest.saturating_sub(has));
        // The reason for its lag is already in the list.
        if let (Some(behind @ 1..), None) = (behind, not_taken(edge)) {
            found.push(format!("gateway {} is {behind} revisions behind the control plane", name(edge)));
        }
    }
    found
}

/// Withdrawals that some gateways have not confirmed: one line for all.
fn of_withdrawals(listed: Option<&Value>, found: &mut Vec<String>) {
    let rows = listed.and_then(|listed| listed.get("withdrawals")).and_then(Value::as_array);
    let Some((rows, oldest)) = rows.and_then(|rows| Some((rows, rows.first()?))) else { return };
    let total = listed.and_then(|listed| listed.get("total")).and_then(Value::as_u64).unwrap_or(1);
    let mut processes: Vec<&str> =
        rows.iter().filter_map(|row| row.get("lagging")?.as_array()).flatten().filter_map(Value::as_str).collect();
    processes.sort_unstable();
    processes.dedup();
    let word = |field: &str| text(oldest, field);
    found.push(format!(
        "{total} withdrawals are not confirmed by {}, which may still serve them; the oldest is the {} {} of project {}, since {}",
        if processes.is_empty() { "gateways".to_owned() } else { processes.join(", ") },
        word("what"),
        word("which"),
        word("project"),
        word("since"),
    ));
}

/// A process of a gateway, as the control plane names it; without the process id if it does not answer.
fn name(edge: &Value) -> String {
    let process = edge.get("node").and_then(Value::as_str).map(|node| format!("/{node}")).unwrap_or_default();
    format!("{}{process} ({})", text(edge, "gateway"), text(edge, "address"))
}

/// The problems of a gateway's replica.
fn not_taken(edge: &Value) -> Option<&str> {
    edge.get("replica_refuses").and_then(Value::as_str)
}

fn of_clocks(edge: &Value, name: &str, found: &mut Vec<String>) {
    let behind = edge.get("clock_behind_milliseconds").and_then(Value::as_i64).unwrap_or(0);
    if behind.abs() > CLOCK_OFF_MILLISECONDS_MAX {
        let how = if behind > 0 { "behind" } else { "ahead" };
        found.push(format!(
            "the clock of gateway {name} is {} s {how}, by the quota store and the control plane: set it (NTP)",
            behind.abs() / 1_000
        ));
    }
    for (clock, words) in [("quota_store", "the quota store"), ("control_plane", "the control plane")] {
        let off = edge.pointer(&format!("/clocks_off_milliseconds/{clock}")).and_then(Value::as_i64).unwrap_or(0);
        if off.abs() > CLOCKS_APART_MILLISECONDS_MAX {
            found.push(format!(
                "the clocks of gateway {name} and of {words} differ by {} s: set the wrong one (NTP)",
                off.abs() / 1_000
            ));
        }
    }
}

fn of_quota_store(edge: &Value, name: &str, found: &mut Vec<String>) {
    let trouble = edge.pointer("/quota/store_trouble").and_then(Value::as_str);
    match (edge.pointer("/quota/mode").and_then(Value::as_str), trouble) {
        (Some(mode @ ("share" | "deny" | "allow")), trouble) => found.push(format!(
            "gateway {name} counts without the quota store ({mode}): {}",
            trouble.unwrap_or("it does not answer")
        )),
        (_, Some(trouble)) => found.push(format!(
            "gateway {name} gets errors from the quota store, and bans may not reach the other gateways: {trouble}"
        )),
        (_, None) => {}
    }
}

fn of_edge(edge: &Value, found: &mut Vec<String>) {
    let name = name(edge);
    if let Some(reason) = edge.get("unreachable").and_then(Value::as_str) {
        found.push(format!("gateway {name} does not answer: {reason}"));
        return;
    }
    if edge.get("draining") == Some(&json!(true)) {
        found.push(format!("gateway {name} is out of rotation"));
    } else if edge.get("unregistered") == Some(&json!("held")) {
        found.push(format!(
            "gateway {name} was shut down gracefully, or its data directory was copied: it serves nothing until it \
             reaches the control plane. Start that, or see serve_before_registered in docs/operator/running.md"
        ));
    } else if edge.get("ready") == Some(&json!(false)) {
        found.push(format!("gateway {name} is not ready"));
    }
    if edge.get("unregistered") == Some(&json!("served")) {
        found.push(format!(
            "gateway {name} serves the replica from its graceful shutdown or copy (feed.serve_before_registered): it \
             still serves everything withdrawn since, and no withdrawal waits for it"
        ));
    }
    of_quota_store(edge, &name, found);
    if let Some(why) = not_taken(edge) {
        let has_nothing = edge.get("revision") == Some(&json!(0));
        let how = if has_nothing { "has no replica to serve" } else { "serves its previous replica" };
        found.push(format!("gateway {name} {how}: {why}"));
    }
    for upstream in items(edge, "/upstreams") {
        if upstream.get("insecure") == Some(&json!(true)) {
            let upstream = text(upstream, "name");
            found.push(format!(
                "INSECURE: gateway {name} does not verify the certificate of upstream {upstream}: remove `insecure`"
            ));
        }
    }
    of_clocks(edge, &name, found);
    let now = edge.get("now").and_then(Value::as_i64);
    let last = edge.get("feed_received_at").and_then(Value::as_i64);
    match now.zip(last) {
        // The control plane was reached; its data was refused.
        Some((_, 0)) if not_taken(edge).is_some() => {}
        Some((_, 0)) => {
            found.push(format!("gateway {name} has received nothing from the control plane since its start"));
        }
        Some((now, last)) if now - last > SILENT_SECONDS_MAX => {
            found.push(format!("gateway {name} received nothing from the control plane for {} seconds", now - last));
        }
        _ => {}
    }
    for upstream in items(edge, "/upstreams") {
        let figure = |field: &str| upstream.get(field).and_then(Value::as_u64).unwrap_or(0);
        if figure("up") < figure("endpoints") || figure("endpoints") == 0 {
            let reason = upstream.get("failing_because").and_then(Value::as_str);
            found.push(format!(
                "gateway {name} reaches {} of {} addresses of upstream {}{}",
                figure("up"),
                figure("endpoints"),
                text(upstream, "name"),
                reason.map_or(String::new(), |reason| format!(": {reason}")),
            ));
        }
    }
    for fault in items(edge, "/platform_certificate_faults").chain(items(edge, "/listener_certificate_faults")) {
        found.push(format!("gateway {name}: {}", fault.as_str().unwrap_or("?")));
    }
    for refused in items(edge, "/unusable_certificates") {
        found.push(format!(
            "gateway {name} cannot use the newest certificate of {} and keeps the previous one: {}",
            text(refused, "hostname"),
            text(refused, "reason")
        ));
    }
    for certificate in items(edge, "/certificates") {
        let left = certificate.get("lifetime_left").and_then(Value::as_f64).unwrap_or(1.0);
        if left < LIFETIME_LEFT_MIN {
            let host = text(certificate, "host");
            found.push(format!("the certificate of {host} has {:.0} % of its lifetime left", left * 100.0));
        }
    }
    for file in items(edge, "/damaged_files").filter_map(Value::as_str) {
        found.push(format!(
            "gateway {name} found a damaged file in its data directory and started without it: check the disk, then remove {file}"
        ));
    }
    if let Some(reason) = edge.get("settings_refused").and_then(Value::as_str) {
        found.push(format!(
            "gateway {name} refuses its changed settings: {reason}. Those in force stay; correct the file (tollhouse check-config)"
        ));
    }
    of_tasks(&format!("gateway {name}"), edge, found);
    if let Some(dropped @ 1..) = edge.get("log_lines_dropped").and_then(Value::as_i64) {
        found.push(format!("gateway {name} has dropped {dropped} log lines since it started"));
    }
}

/// Background tasks that panicked in the last ten minutes.
fn of_tasks(process: &str, status: &Value, found: &mut Vec<String>) {
    for panicked in items(status, "/panicked_tasks") {
        let figure = |field: &str| panicked.get(field).and_then(Value::as_u64).unwrap_or(0);
        found.push(format!(
            "the background task {} of {process} panicked {} seconds ago and was started again, panic {} since the process started: \
             report this defect with the panic in the process's log",
            text(panicked, "task"),
            figure("seconds_ago"),
            figure("panics"),
        ));
    }
}

/// Most rows that are listed; further ones are counted.
const ROWS_NAMED: usize = 5;

fn unreadable_rows(control: Option<&Value>, found: &mut Vec<String>) {
    let rows = control.and_then(|control| control.pointer("/unreadable_rows/rows")).and_then(Value::as_array);
    for row in rows.into_iter().flatten().take(ROWS_NAMED) {
        let field = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let of = field("of");
        let of = if of.is_empty() { of } else { format!(" of {of}") };
        found.push(format!(
            "the domains-service cannot read column {} of row {}{of} in {} and skips the row: {}",
            field("column"),
            field("row"),
            field("table"),
            field("reason"),
        ));
    }
    let total = control.and_then(|control| control.pointer("/unreadable_rows/total")).and_then(Value::as_u64);
    let more = total.unwrap_or(0).saturating_sub(u64::try_from(ROWS_NAMED).unwrap_or(u64::MAX));
    if more > 0 {
        found.push(format!("the domains-service cannot read {more} more rows; its log names them"));
    }
}

fn of_service(name: &str, status: Option<&Value>, trouble: &str, kind: &str, found: &mut Vec<String>) {
    let Some(status) = status else { return };
    if let Some(reason) = status.get("unreachable").and_then(Value::as_str) {
        // With a code the process did answer: it cannot use its database.
        found.push(match status.get("code").and_then(Value::as_str) {
            Some(code) if NO_DATABASE.contains(&code) => failure(name, code, 0),
            _ => format!("{name} does not answer: {reason}"),
        });
        return;
    }
    for fault in items(status, "/listener_certificate_faults") {
        found.push(format!("{name}: {}", fault.as_str().unwrap_or("?")));
    }
    of_tasks(name, status, found);
    let Some(trouble) = status.get(trouble).filter(|trouble| !trouble.is_null()) else { return };
    let ago = trouble.get("seconds_ago").and_then(Value::as_u64).unwrap_or(0);
    if ago <= RECENT_SECONDS {
        found.push(failure(name, text(trouble, kind), ago));
    }
}

/// A failed request of a service: by the kind of fault of its store, or by the code of the refusal.
fn failure(name: &str, kind: &str, ago: u64) -> String {
    let what_to_do = match kind {
        "full" | "storage_full" => "free space on its disk",
        "busy" => "check its locks and its load",
        "corrupt" => "restore a backup (docs/operator/backup.md)",
        "io" => "check its disk and file system; a PostgreSQL server must be the primary",
        "unreachable" => "start the database server, or repair the network to it",
        "resolver_unavailable" => {
            return format!(
                "{name} got no answer from any DNS resolver {ago} seconds ago: check the network and the setting nameservers"
            );
        }
        "internal_error" | "record_unreadable" => {
            return format!("{name} failed to process a request {ago} seconds ago ({kind}): its log has the reason");
        }
        _ => "its log has the reason",
    };
    format!("the database of {name} failed {ago} seconds ago: {kind}: {what_to_do}")
}

/// The members of a list; empty if it is missing.
fn items<'a>(of: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    of.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The text of a field; a question mark if it is missing.
fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or("?")
}

#[cfg(test)]
mod tests;
