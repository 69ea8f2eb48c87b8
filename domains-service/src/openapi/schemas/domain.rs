//! A domain and all that hangs on it.

use serde_json::{Value, json};

use super::{
    answer, count, date, date_or_null, flag, list_of, or_null, page, reference, request, text, text_or_null, word,
};
use crate::domain::Status;
use crate::store::withdrawals::What;
use verification::problem::ProblemCode;

/// The statuses a redirect may have.
const REDIRECT_STATUSES: [u16; 4] = [301, 302, 307, 308];

pub(super) fn schemas() -> Value {
    let redirect_status = json!({
        "type": ["integer", "null"], "enum": [REDIRECT_STATUSES[0], REDIRECT_STATUSES[1], REDIRECT_STATUSES[2],
            REDIRECT_STATUSES[3], null],
        "description": "Null: 301 for GET and HEAD, 308 for everything else.",
    });
    let to = text("`primary`, or another domain of the project.");
    let rule = request(&["to"], &json!({ "to": to, "status": redirect_status }));
    let mut domains = page("domains", "Domain");
    if let Some(properties) = domains.pointer_mut("/properties").and_then(Value::as_object_mut) {
        properties.insert("quota".to_owned(), reference("DomainQuota"));
    }
    if let Some(required) = domains.pointer_mut("/required").and_then(Value::as_array_mut) {
        required.push(json!("quota"));
    }
    json!({
        "Domain": domain(),
        "Domains": domains,
        "DomainQuota": answer("How many domains the plan has.", &json!({
            "allocated": count("How many there may be."),
            "used": count("How many there are."),
            "hard_cap": flag("Whether more are refused."),
        })),
        "Redirect": answer("Where visitors are sent.", &json!({ "to": to, "status": redirect_status })),
        "NewRedirect": rule,
        "NewDomain": request(&["name"], &json!({
            "name": text("A fully qualified name; international names in either form."),
            "primary": { "type": "boolean", "default": false, "description": "Make it the primary one once it is active." },
            "redirect": or_null(&reference("NewRedirect")),
        })),
        "DomainChange": request(&[], &json!({
            "primary": { "type": ["boolean", "null"], "description": "Whether it is the primary one." },
            "redirect": or_null(&reference("NewRedirect")),
        })),
        "DomainCheck": answer("What adding a name would mean.", &json!({
            "name": text("The name in ASCII."),
            "unicode_name": text("The name as people read it."),
            "local": flag("Whether it always means this machine."),
            "is_apex": flag("Whether it is the apex of its zone."),
            "contested": flag("Whether another project has it, or had it lately: ownership is to be proven."),
            "records": list_of(&reference("Record"), "What to create."),
            "problems": list_of(&reference("Problem"), "What is in the way."),
            "checks": or_null(&reference("Checks")),
        })),
        "Removal": answer("A removal that not all gateways know of.", &json!({
            "lagging": list_of(&json!({ "type": "string" }), "Their names."),
        })),
        "Withdrawal": answer("What was withdrawn and may be served still by some gateways.", &json!({
            "what": word(What::WORDS, "What kind of thing."),
            "since": date("Since when."),
            "lagging": list_of(&json!({ "type": "string" }), "The gateways that have not acknowledged it."),
        })),
        "Record": record(),
        "Problem": problem(),
        "Checks": checks(),
        "Nameserver": nameserver(),
        "Certificate": certificate(),
    })
}

fn domain() -> Value {
    answer(
        "A domain.",
        &json!({
            "name": text("The name in ASCII."),
            "unicode_name": text("The name as people read it."),
            "project_id": text("Whose it is."),
            "status": word(Status::WORDS, "Where it stands; `active` is the aim."),
            "status_since": date("Since when."),
            "primary": flag("Whether it is the project's canonical name."),
            "redirect": or_null(&reference("Redirect")),
            "is_apex": flag("Whether it is the apex of its zone, where no CNAME can be."),
            "records": list_of(&reference("Record"), "What its owner is to create."),
            "checks": or_null(&reference("Checks")),
            "problems": list_of(&reference("Problem"), "What is in the way, who acts, and what to type."),
            "next_check_at": date_or_null("When we look again."),
            "certificate": reference("Certificate"),
            "withdrawal": or_null(&reference("Withdrawal")),
            "created_at": date("When it was added."),
            "updated_at": date("When it was last changed."),
            "rev": count("Its revision."),
        }),
    )
}

fn record() -> Value {
    let states = word(&["ok", "missing", "wrong", "partial", "unknown"], "What the last look found.");
    answer(
        "A DNS record.",
        &json!({
            "type": word(&["CNAME", "ALIAS", "TXT"], "Its type; ALIAS is what providers call ALIAS, ANAME or flattening."),
            "name": text("Its name as a provider's form wants it."),
            "fqdn": text("Its whole name."),
            "value": text("Its value."),
            "ttl": count("Its time to live in seconds."),
            "purpose": word(&["traffic", "ownership"], "What it is for."),
            "state": states,
        }),
    )
}

fn problem() -> Value {
    let texts = json!({ "type": "string" });
    answer(
        "What stands between a domain and its certificate.",
        &json!({
            "code": word(ProblemCode::WORDS, "Which problem it is."),
            "severity": word(&["error", "warning"], "Whether it holds the domain up."),
            "who": word(&["you", "us", "ca"], "Who must act."),
            "message": text("What is the matter."),
            "expected": list_of(&texts, "What should be there."),
            "observed": list_of(&texts, "What is there."),
            "where": text("The name or nameserver it was seen at."),
            "fix": text("What to do."),
            "retry_at": date_or_null("When we try again by ourselves."),
        }),
    )
}

fn checks() -> Value {
    let texts = json!({ "type": "string" });
    let caa = answer(
        "CAA records.",
        &json!({
            "allowed_cas": list_of(&texts, "Authorities that may issue."),
            "records": list_of(&texts, "What was found."),
        }),
    );
    answer(
        "The last look at DNS.",
        &json!({
            "at": date("When."),
            "duration_ms": count("How long it took."),
            "queries": count("Questions asked."),
            "resolver": text("Whom we asked: `authoritative` or `recursive`."),
            "zone": text_or_null("The zone the name is in."),
            "nameservers": list_of(&reference("Nameserver"), "What each said."),
            "caa": caa,
        }),
    )
}

fn nameserver() -> Value {
    let texts = json!({ "type": "string" });
    answer(
        "What a nameserver said.",
        &json!({
            "host": text("Its name."),
            "ip": text_or_null("Its address."),
            "verdict": text("What we make of it."),
            "cname": text_or_null("The CNAME."),
            "a": list_of(&texts, "A records."),
            "aaaa": list_of(&texts, "AAAA records."),
            "ttl": { "type": ["integer", "null"], "description": "The time to live of the answer in seconds." },
        }),
    )
}

fn certificate() -> Value {
    let words = ["none", "queued", "ordering", "validating", "finalizing", "deployed", "renewing", "failed"];
    answer(
        "A domain's certificate.",
        &json!({
            "status": word(&words, "How far it is."),
            "ca": text_or_null("Who issued it."),
            "serial": text_or_null("Its serial number."),
            "not_before": date_or_null("From when it is valid."),
            "not_after": date_or_null("Until when."),
            "key_type": text_or_null("The type of its key."),
            "renew_at": date_or_null("When its successor will be asked for."),
            "attempts": count("Failed attempts in a row."),
            "last_error": text_or_null("What the last one failed with: one phrase for each class of failure."),
            "next_attempt_at": date_or_null("When the next one is made."),
            "rate_limited_until": date_or_null("Until when the authority wants to be left alone."),
        }),
    )
}
