//! A domain and all that hangs on it.

use contract::hostname::Hostname;
use contract::project::ProjectId;
use verification::problem::{ProblemCode, Severity, Who};
use verification::verdict::{CaaView, NameserverView, RecordState};

use super::{CertificateStatus, Field, Rfc3339, Status, Withdrawal};

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Domain = "A domain." {
        name: Hostname = "The name in ASCII.";
        unicode_name: String = "The name as people read it.";
        project_id: ProjectId = "Whose it is.";
        status: Status = "Where it stands; `active` is the aim.";
        status_since: Rfc3339 = "Since when.";
        primary: bool = "Whether it is the project's canonical name.";
        redirect: Option<Redirect>;
        is_apex: bool = "Whether it is the apex of its zone, where no CNAME can be.";
        records: Vec<Record> = "What its owner is to create.";
        checks: Option<Checks>;
        problems: Vec<Problem> = "What is in the way, who acts, and what to type.";
        next_check_at: Option<Rfc3339> = "When DNS is checked next.";
        certificate: Certificate;
        withdrawal: Option<Withdrawal>;
        created_at: Rfc3339 = "When it was added.";
        updated_at: Rfc3339 = "When it was last changed.";
        rev: i64 = "Its revision.", { "minimum": 0 };
    }
}

contract::message! {
    pub answer Domains = "A page." {
        domains: Vec<Domain>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
        quota: DomainQuota;
    }
}

contract::message! {
    pub answer DomainQuota = "How many domains the plan has." {
        allocated: u32 = "How many there may be.";
        used: u64 = "How many there are.";
        hard_cap: bool = "Whether more are refused.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Redirect = "Where visitors are sent." {
        to: String = "`primary`, or another domain of the project.";
        status: Option<u16> = "Null: 301 for GET and HEAD, 308 for everything else.", { "enum": [301, 302, 307, 308, null] };
    }
}

contract::message! {
    pub request NewRedirect = "Where to send visitors." {
        to: String = "`primary`, or another domain of the project.";
        status: Option<u16> = "Null: 301 for GET and HEAD, 308 for everything else.", { "enum": [301, 302, 307, 308, null] };
    }
}

contract::message! {
    pub request NewDomain = "A domain to add." {
        name: String = "A fully qualified name; international names in either form.";
        #[serde(default)]
        primary: bool = "Make it the primary one once it is active.", { "default": false };
        redirect: Option<NewRedirect>;
    }
}

contract::message! {
    pub request DomainChange = "What to change of a domain." {
        primary: Option<bool> = "Whether it is the primary one.";
        #[serde(default)]
        redirect: Field<NewRedirect>;
    }
}

contract::message! {
    pub answer DomainCheck = "What adding a name would mean." {
        name: Hostname = "The name in ASCII.";
        unicode_name: String = "The name as people read it.";
        local: bool = "Whether it always means this machine.";
        is_apex: bool = "Whether it is the apex of its zone.";
        contested: bool = "Whether another project has it, or had it lately: ownership is to be proven.";
        records: Vec<Record> = "What to create.";
        problems: Vec<Problem> = "What is in the way.";
        checks: Option<Checks>;
    }
}

contract::words! {
    /// The type of a record.
    pub enum RecordType {
        /// An alias of a name.
        Cname = "CNAME",
        /// What providers call ALIAS, ANAME or flattening.
        Alias = "ALIAS",
        /// A text.
        Txt = "TXT",
    }
}

contract::words! {
    /// What a record is for.
    pub enum RecordPurpose {
        /// To lead visitors here.
        Traffic = "traffic",
        /// To prove whose the name is.
        Ownership = "ownership",
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Record = "A DNS record." {
        kind as "type": RecordType = "Its type; ALIAS is what providers call ALIAS, ANAME or flattening.";
        name: String = "Its name as a provider's form wants it.";
        fqdn: String = "Its whole name.";
        value: String = "Its value.";
        ttl: u32 = "Its time to live in seconds.";
        purpose: RecordPurpose = "What it is for.";
        state: RecordState = "What the last check found.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Problem = "What stands between a domain and its certificate." {
        code: ProblemCode = "Which problem it is.";
        severity: Severity = "Whether it holds the domain up.";
        who: Who = "Who must act.";
        message: String = "What is the matter.";
        expected: Vec<String> = "What should be there.";
        observed: Vec<String> = "What is there.";
        place as "where": String = "The name or nameserver it was seen at.";
        fix: String = "What to do.";
        retry_at: Option<Rfc3339> = "When we try again by ourselves.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Checks = "The last check of DNS." {
        at: Rfc3339 = "When.";
        duration_ms: u64 = "How long it took.";
        queries: u32 = "Questions asked.";
        resolver: String = "Whom we asked: `authoritative` or `recursive`.";
        zone: Option<String> = "The zone the name is in.";
        nameservers: Vec<NameserverView> = "What each said.";
        caa: CaaView;
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Turn = "Its place in our queue of orders, while it waits there." {
        number: i64 = "Its number in the queue, from 1.", { "minimum": 1 };
        at: Option<Rfc3339> = "When its turn comes, as far as is known now; null while no gateway is connected.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Certificate = "A domain's certificate." {
        status: CertificateStatus = "How far it is.";
        ca: Option<String> = "Who issued it.";
        serial: Option<String> = "Its serial number.";
        not_before: Option<Rfc3339> = "From when it is valid.";
        not_after: Option<Rfc3339> = "Until when.";
        key_type: Option<String> = "The type of its key.";
        renew_at: Option<Rfc3339> = "When its successor will be asked for.";
        queue: Option<Turn>;
        attempts: u32 = "Failed attempts in a row.";
        last_error: Option<String> = "What the last one failed with: one phrase for each class of failure.";
        next_attempt_at: Option<Rfc3339> = "When the next one is made.";
        rate_limited_until: Option<Rfc3339> = "Until when the authority wants to be left alone.";
    }
}
