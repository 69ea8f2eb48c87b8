//! A domain with its records, problems, checks and certificate.

use contract::hostname::Hostname;
use contract::project::ProjectId;
use verification::problem::{ProblemCode, Severity, Who};
use verification::verdict::{CaaView, NameserverView, Records};

use super::{CertificateStatus, Field, Rfc3339, Status, Withdrawal};

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Domain = "A domain." {
        name: Hostname = "The name in ASCII.";
        unicode_name: String = "The name in Unicode.";
        project_id: ProjectId = "The project that it belongs to.";
        status: Status = "The domain's state; `active` is the final one.";
        status_since: Rfc3339 = "Since when.";
        primary: bool = "Whether it is the project's canonical name.";
        redirect: Option<Redirect>;
        is_apex: bool = "Whether it is the apex of its zone, where DNS allows no CNAME.";
        records: Vec<Record> = "The DNS records that the owner must create.";
        checks: Option<Checks>;
        problems: Vec<Problem> = "Problems that keep the domain from being served, with their fixes.";
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
    pub answer DomainQuota = "The number of domains that the plan allows." {
        allocated: u32 = "The largest number of domains.";
        used: u64 = "The present number of domains.";
        hard_cap: bool = "Whether more domains are refused.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Redirect = "A redirect of visitors." {
        to: String = "`primary`, or another domain of the project.";
        status: Option<u16> = "Null: 301 for GET and HEAD, 308 for everything else.", { "enum": [301, 302, 307, 308, null] };
    }
}

contract::message! {
    pub request NewRedirect = "A redirect of visitors." {
        to: String = "`primary`, or another domain of the project.";
        status: Option<u16> = "Null: 301 for GET and HEAD, 308 for everything else.", { "enum": [301, 302, 307, 308, null] };
    }
}

contract::message! {
    pub request NewDomain = "A domain to add." {
        name: String = "A fully qualified name; international names in either form.";
        #[serde(default)]
        primary: bool = "Whether it becomes primary when it is active.", { "default": false };
        redirect: Option<NewRedirect>;
    }
}

contract::message! {
    pub request DomainChange = "Changes of a domain; absent fields stay." {
        primary: Option<bool> = "Whether it is the primary domain.";
        #[serde(default)]
        redirect: Field<NewRedirect>;
    }
}

contract::message! {
    pub answer DomainCheck = "The result that adding this name would have." {
        name: Hostname = "The name in ASCII.";
        unicode_name: String = "The name in Unicode.";
        local: bool = "Whether the name always means this machine (`.localhost`).";
        is_apex: bool = "Whether it is the apex of its zone.";
        contested: bool = "Whether another project has or recently had the name, so that ownership must be proven.";
        records: Vec<Record> = "The DNS records to create.";
        problems: Vec<Problem> = "Problems that would keep it from being served.";
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
    /// The purpose of a record.
    pub enum RecordPurpose {
        /// Sends visitors here.
        Traffic = "traffic",
        /// Proves ownership of the name.
        Ownership = "ownership",
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Record = "A DNS record." {
        kind as "type": RecordType = "Its type; ALIAS is what providers call ALIAS, ANAME or flattening.";
        name: String = "The name as DNS providers' forms take it: relative to the zone.";
        fqdn: String = "Its whole name.";
        value: String = "Its value.";
        ttl: u32 = "Its time to live in seconds.";
        purpose: RecordPurpose = "The purpose of the record.";
        state: Records = "The result of the last check.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Problem = "A problem that keeps a domain from being served." {
        code: ProblemCode = "The code of the problem.";
        severity: Severity = "Whether the domain waits for the fix.";
        who: Who = "Who must act.";
        message: String = "The problem in words.";
        expected: Vec<String> = "The expected records.";
        observed: Vec<String> = "The records found.";
        place as "where": String = "The name or nameserver with the problem.";
        fix: String = "What the owner must do.";
        retry_at: Option<Rfc3339> = "When the platform tries again automatically.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Checks = "The last check of DNS." {
        at: Rfc3339 = "When.";
        duration_ms: u64 = "How long it took.";
        queries: u32 = "Questions asked.";
        resolver: String = "The servers asked: `authoritative` or `recursive`.";
        zone: Option<String> = "The zone the name is in.";
        nameservers: Vec<NameserverView> = "The answer of each.";
        caa: CaaView;
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer QueuePosition = "The domain's position in the queue of certificate orders." {
        number: i64 = "Its number in the queue, from 1.", { "minimum": 1 };
        at: Option<Rfc3339> = "The estimated time of its order; null while no gateway is connected.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Certificate = "A domain's certificate." {
        status: CertificateStatus = "The state of the certificate.";
        ca: Option<String> = "The authority that issued it.";
        serial: Option<String> = "Its serial number.";
        not_before: Option<Rfc3339> = "From when it is valid.";
        not_after: Option<Rfc3339> = "Until when.";
        key_type: Option<String> = "The type of its key.";
        renew_at: Option<Rfc3339> = "When it will be renewed.";
        queue: Option<QueuePosition>;
        attempts: u32 = "Failed attempts in a row.";
        last_error: Option<String> = "The class of the last failure, as a fixed phrase.";
        next_attempt_at: Option<Rfc3339> = "When the next attempt is made.";
        rate_limited_until: Option<Rfc3339> = "Until when the authority limits our orders.";
    }
}
