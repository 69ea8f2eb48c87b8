//! Finds the problems in a status: each names its process and cause, who must act, and the next step. Pure, so that
//! every problem has a test.

mod gateway;

use contract::trouble::Trouble;
use serde_json::Value;

/// A fault of a store that was seen longer ago counts as over.
const RECENT_SECONDS: u64 = 60;

/// A service fetches the trusted keys every second.
const TRUST_SECONDS_MAX: u64 = 60;

/// The codes of a service without its database.
const NO_DATABASE: [&str; 2] = ["storage_unavailable", "storage_full"];

/// Every problem in the status of all processes.
pub(super) fn find(all: &Value) -> Vec<Trouble> {
    let mut found = Vec::new();
    for edge in items(all, "/edges") {
        gateway::all_of(edge, &mut found);
    }
    of_service("the domains-service", all.get("control"), "trouble", "code", &mut found);
    if let Some(missing @ 1..) = all.pointer("/control/sealed_with_missing").and_then(Value::as_u64) {
        found.push(Trouble::of_platform(
            format!("the domains-service lacks the sealing secret of {missing} private keys or webhook secrets"),
            "restore it in sealing_secret_file, and restart the domains-service",
        ));
    }
    let waiting = all.pointer("/control/domains/issuing").and_then(Value::as_u64).unwrap_or(0);
    if waiting > 0 && items(all, "/control/certificate_authorities").next().is_none() {
        found.push(Trouble::of_platform(
            format!("{waiting} domains wait for a certificate, and no certificate authority is configured"),
            "configure [[authorities]] or [local_authority] in domains-service.toml, and restart the domains-service",
        ));
    }
    of_withdrawals(all.get("withdrawals"), &mut found);
    for refused in items(all, "/control/credential_files_refused") {
        let (file, reason) = (text(refused, "file"), text(refused, "reason"));
        found.push(Trouble::of_platform(
            format!("the domains-service refused the credential file {file} when it started: {reason}"),
            text(refused, "what_to_do"),
        ));
    }
    if let Some(trouble) = all.pointer("/control/revocations_file_trouble").filter(|trouble| !trouble.is_null()) {
        found.push(told("the domains-service", trouble));
    }
    let elsewhere: Vec<&str> = items(all, "/control/gateways_of_another_history").filter_map(Value::as_str).collect();
    if !elsewhere.is_empty() {
        found.push(Trouble::of_platform(
            format!(
                "the domains-service's database lacks changes that these gateways have applied: {}. It went back to an earlier \
                 state, or is another database; a gateway that starts with an empty data directory serves that state",
                elsewhere.join(", ")
            ),
            "put the right database back, or run `tollhouse node accept` (docs/operator/backup.md)",
        ));
    }
    unreadable_rows(all.get("control"), &mut found);
    of_service("the orders-service", all.get("orders"), "store_trouble", "kind", &mut found);
    if let Some(old) =
        all.pointer("/orders/trust_seconds_old").and_then(Value::as_u64).filter(|old| *old > TRUST_SECONDS_MAX)
    {
        let problem = format!(
            "the orders-service has not received the trusted keys from the control plane for {} minutes: it still accepts \
             gateways that were revoked since",
            old / 60
        );
        let step =
            "start the domains-service, or correct events.url, the network or the credential of the orders-service";
        found.push(Trouble::of_platform(problem, step));
    }
    let newest = all.pointer("/nodes/revision").and_then(Value::as_u64);
    for edge in items(all, "/edges") {
        let behind =
            newest.zip(edge.get("revision").and_then(Value::as_u64)).map(|(newest, has)| newest.saturating_sub(has));
        // The reason for its lag is already in the list.
        if let (Some(behind @ 1..), None) = (behind, gateway::not_taken(edge)) {
            let problem = format!("gateway {} is {behind} revisions behind the control plane", gateway::name(edge));
            found.push(Trouble::of_platform(
                problem,
                "if it stays behind, see its log, and check the network to feed.url",
            ));
        }
    }
    found
}

/// Withdrawals that some gateways have not confirmed: one line for all.
fn of_withdrawals(listed: Option<&Value>, found: &mut Vec<Trouble>) {
    let rows = listed.and_then(|listed| listed.get("withdrawals")).and_then(Value::as_array);
    let Some((rows, oldest)) = rows.and_then(|rows| Some((rows, rows.first()?))) else { return };
    let total = listed.and_then(|listed| listed.get("total")).and_then(Value::as_u64).unwrap_or(1);
    let mut processes: Vec<&str> =
        rows.iter().filter_map(|row| row.get("lagging")?.as_array()).flatten().filter_map(Value::as_str).collect();
    processes.sort_unstable();
    processes.dedup();
    let word = |field: &str| text(oldest, field);
    let problem = format!(
        "{total} withdrawals are not confirmed by {}, which may still serve them; the oldest is the {} {} of project {}, since {}",
        if processes.is_empty() { "gateways".to_owned() } else { processes.join(", ") },
        word("what"),
        word("which"),
        word("project"),
        word("since"),
    );
    found.push(Trouble::of_platform(
        problem,
        "repair the connection of these processes to the control plane; for one that has ended for good, run `tollhouse node \
         revoke` with the part of its name before the slash",
    ));
}

/// A problem in the words of its process.
fn told(process: &str, fault: &Value) -> Trouble {
    Trouble::of_platform(format!("{process}: {}", text(fault, "problem")), text(fault, "what_to_do"))
}

/// Background tasks that panicked in the last ten minutes.
fn of_tasks(process: &str, status: &Value, found: &mut Vec<Trouble>) {
    for panicked in items(status, "/panicked_tasks") {
        let figure = |field: &str| panicked.get(field).and_then(Value::as_u64).unwrap_or(0);
        found.push(Trouble::of_platform(
            format!(
                "the background task {} of {process} panicked {} seconds ago and was started again, panic {} since the process \
                 started",
                text(panicked, "task"),
                figure("seconds_ago"),
                figure("panics"),
            ),
            "report this defect with the panic in the process's log",
        ));
    }
}

/// Most rows that are listed; further ones are counted.
const ROWS_NAMED: usize = 5;

fn unreadable_rows(control: Option<&Value>, found: &mut Vec<Trouble>) {
    let step = "repair the column, or remove the object (docs/operator/runbooks/DomainsRowsUnreadable.md)";
    let rows = control.and_then(|control| control.pointer("/unreadable_rows/rows")).and_then(Value::as_array);
    for row in rows.into_iter().flatten().take(ROWS_NAMED) {
        let field = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let of = field("of");
        let of = if of.is_empty() { of } else { format!(" of {of}") };
        let problem = format!(
            "the domains-service cannot read column {} of row {}{of} in {} and skips the row: {}",
            field("column"),
            field("row"),
            field("table"),
            field("reason"),
        );
        found.push(Trouble::of_platform(problem, step));
    }
    let total = control.and_then(|control| control.pointer("/unreadable_rows/total")).and_then(Value::as_u64);
    let more = total.unwrap_or(0).saturating_sub(u64::try_from(ROWS_NAMED).unwrap_or(u64::MAX));
    if more > 0 {
        let problem = format!("the domains-service cannot read {more} more rows; its log names them");
        found.push(Trouble::of_platform(problem, step));
    }
}

fn of_service(name: &str, status: Option<&Value>, trouble: &str, kind: &str, found: &mut Vec<Trouble>) {
    let Some(status) = status else { return };
    if let Some(reason) = status.get("unreachable").and_then(Value::as_str) {
        // With a code the process did answer: it cannot use its database.
        found.push(match status.get("code").and_then(Value::as_str) {
            Some(code) if NO_DATABASE.contains(&code) => failure(name, code, 0),
            _ => Trouble::of_platform(
                format!("{name} does not answer: {reason}"),
                "start it, or repair the network to its internal listener; its log says why it ended",
            ),
        });
        return;
    }
    found.extend(items(status, "/listener_certificate_faults").map(|fault| told(name, fault)));
    of_tasks(name, status, found);
    let Some(trouble) = status.get(trouble).filter(|trouble| !trouble.is_null()) else { return };
    let ago = trouble.get("seconds_ago").and_then(Value::as_u64).unwrap_or(0);
    if ago <= RECENT_SECONDS {
        let mut failure = failure(name, text(trouble, kind), ago);
        if let Some(step) = trouble.get("what_to_do").and_then(Value::as_str) {
            step.clone_into(&mut failure.what_to_do);
        }
        found.push(failure);
    }
}

/// A failed request of a service: by the kind of fault of its store, or by the code of the refusal.
fn failure(name: &str, kind: &str, ago: u64) -> Trouble {
    match kind {
        "resolver_unavailable" => Trouble::of_platform(
            format!("{name} got no answer from any DNS resolver {ago} seconds ago"),
            "check the network of its machine, and the setting nameservers under [dns]",
        ),
        "internal_error" | "record_unreadable" => Trouble::of_platform(
            format!("{name} failed to process a request {ago} seconds ago ({kind})"),
            "read the reason in its log; if it is a defect, report it",
        ),
        _ => Trouble::of_platform(
            format!("the database of {name} failed {ago} seconds ago: {kind}"),
            match kind {
                "storage_full" => "free space on the disk of the database",
                _ => "start the database, or repair the network to it; the log of the process has its message",
            },
        ),
    }
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
