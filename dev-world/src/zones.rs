//! The file with the answers of DNS: one record or one misbehaviour per line.
//!
//! ```text
//! # records: NAME TYPE VALUE, at one nameserver alone with @SERVER (1 to 3)
//! shop.customer.test CNAME g64lsuvp.edge.tollhouse.localhost
//! shop.customer.test A 192.0.2.7 @2
//! customer.test CAA 0 issue "other.example"
//! # misbehaviour of a zone's nameservers: ! ZONE WHAT
//! ! customer.test servfail @3
//! ! quiet.test silent
//! # a zone of its own below another one
//! zone sub.customer.test
//! ```
//!
//! Every name under two labels or more has a zone: its last two labels, unless a `zone` line says otherwise.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use contract::hostname::Hostname;

/// Nameservers of every zone.
pub(super) const SERVERS: u8 = 3;

/// Lines in a file.
const LINES_MAX: usize = 10_000;

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Txt(String),
    /// Flags, tag and value.
    Caa(u8, String, String),
}

impl Value {
    /// Parses the text after the name and type of a line.
    pub(super) fn parse(kind: &str, text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        match kind.to_ascii_uppercase().as_str() {
            "A" => text.parse().map(Self::A).map_err(|_| "an A record has an IPv4 address"),
            "AAAA" => text.parse().map(Self::Aaaa).map_err(|_| "an AAAA record has an IPv6 address"),
            "CNAME" => Ok(Self::Cname(text.trim_end_matches('.').to_ascii_lowercase())),
            "TXT" => Ok(Self::Txt(text.trim_matches('"').to_owned())),
            "CAA" => {
                let form = "a CAA record is: FLAGS TAG \"VALUE\", for example 0 issue \"letsencrypt.org\"";
                let mut parts = text.splitn(3, ' ');
                let (Some(flags), Some(tag), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
                    return Err(form);
                };
                let flags = flags.parse().map_err(|_| form)?;
                Ok(Self::Caa(flags, tag.to_owned(), value.trim().trim_matches('"').to_owned()))
            }
            _ => Err("use the type A, AAAA, CNAME, TXT or CAA"),
        }
    }
}

/// How a nameserver misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misbehaviour {
    /// It does not answer.
    Silent,
    /// It reports a failure (SERVFAIL).
    ServFail,
    /// It refuses (REFUSED).
    Refused,
    /// It answers without authority and without records.
    Lame,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    name: String,
    value: Value,
    server: Option<u8>,
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Zones {
    records: Vec<Record>,
    misbehaviours: Vec<(String, Misbehaviour, Option<u8>)>,
    cuts: BTreeSet<String>,
}

impl Zones {
    /// Parses the file; returns unreadable lines with their error.
    pub(super) fn parse(text: &str) -> (Self, Vec<String>) {
        let mut zones = Self::default();
        let mut wrong = Vec::new();
        for (number, line) in text.lines().take(LINES_MAX).enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(reason) = zones.read(line) {
                wrong.push(format!("line {}: {reason}: {line}", number + 1));
            }
        }
        (zones, wrong)
    }

    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        let (line, server) = match line.rsplit_once(" @") {
            Some((line, server)) => {
                let server = server.parse().ok().filter(|server| (1..=SERVERS).contains(server));
                (line.trim(), Some(server.ok_or("the nameserver is @1, @2 or @3")?))
            }
            None => (line, None),
        };
        let mut words = line.splitn(3, char::is_whitespace);
        let (first, second) = (words.next().unwrap_or_default(), words.next().ok_or("write NAME TYPE VALUE")?);
        let rest = words.next();
        match first {
            "zone" => {
                self.cuts.insert(name(second));
            }
            "!" => {
                let misbehaviour = match rest.map(str::trim) {
                    Some("silent") => Misbehaviour::Silent,
                    Some("servfail") => Misbehaviour::ServFail,
                    Some("refused") => Misbehaviour::Refused,
                    Some("lame") => Misbehaviour::Lame,
                    _ => return Err("use silent, servfail, refused or lame for a zone"),
                };
                self.misbehaviours.push((name(second), misbehaviour, server));
            }
            _ => {
                let value = Value::parse(second, rest.ok_or("write NAME TYPE VALUE")?)?;
                self.records.push(Record { name: name(first), value, server });
            }
        }
        Ok(())
    }

    /// The zone of a name; `None` for a name with fewer than two labels.
    pub(super) fn zone_of(&self, name: &str) -> Option<String> {
        let mut rest = name;
        loop {
            if self.cuts.contains(rest) || rest.matches('.').count() == 1 {
                return Some(rest.to_owned());
            }
            rest = rest.split_once('.')?.1;
        }
    }

    /// The misbehaviour of a nameserver of this zone.
    pub(super) fn misbehaviour(&self, zone: &str, server: u8) -> Option<Misbehaviour> {
        let found = self.misbehaviours.iter().find(|(at, _, of)| at == zone && of.is_none_or(|of| of == server));
        found.map(|(_, misbehaviour, _)| *misbehaviour)
    }

    /// The records of a name at a nameserver; a wildcard's if the name has none.
    pub(super) fn records(&self, name: &str, server: u8) -> Vec<&Value> {
        let at = |owner: &str| -> Vec<&Value> {
            let here = |record: &&Record| record.name == owner && record.server.is_none_or(|of| of == server);
            self.records.iter().filter(here).map(|record| &record.value).collect()
        };
        let own = at(name);
        if !own.is_empty() {
            return own;
        }
        name.split_once('.').map(|(_, parent)| at(&format!("*.{parent}"))).unwrap_or_default()
    }

    /// Whether there are records at or below a name, at this nameserver.
    pub(super) fn exists(&self, name: &str, server: u8) -> bool {
        let below = format!(".{name}");
        let is_below = |record: &Record| record.name.ends_with(&below) && record.server.is_none_or(|of| of == server);
        !self.records(name, server).is_empty() || self.records.iter().any(is_below)
    }
}

fn name(text: &str) -> String {
    text.trim_end_matches('.').to_ascii_lowercase()
}

/// The initial file: every project's CNAME target points at the edge at this address.
pub(super) fn initial(platform: &Hostname, edge: Ipv4Addr) -> String {
    format!(
        "# What DNS answers in the test world; read again whenever it changes.\n\
         # NAME TYPE VALUE, for example: shop.customer.test CNAME target.edge.{platform}\n\
         # at one of the three nameservers alone: shop.customer.test A 192.0.2.7 @2\n\
         # a zone whose nameservers misbehave (silent, servfail, refused, lame): ! customer.test servfail\n\
         *.edge.{platform} A {edge}\n"
    )
}

/// The file with a record set; replaces the name's records of this type.
pub(super) fn set(text: &str, owner: &str, kind: &str, value: &str) -> String {
    let mut changed = without(text, owner, Some(kind));
    let _ = writeln!(changed, "{} {} {value}", name(owner), kind.to_ascii_uppercase());
    changed
}

/// The file without a name's records, of one type or of all.
pub(super) fn without(text: &str, owner: &str, kind: Option<&str>) -> String {
    let owner = name(owner);
    let is_it = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|first| name(first) == owner)
            && words.next().is_some_and(|second| kind.is_none_or(|kind| second.eq_ignore_ascii_case(kind)))
    };
    text.lines().filter(|line| !is_it(line)).fold(String::new(), |mut kept, line| {
        let _ = writeln!(kept, "{line}");
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\n\
        *.edge.tollhouse.localhost A 127.0.0.1\n\
        Shop.Customer.TEST. CNAME x.edge.tollhouse.localhost.\n\
        shop.customer.test A 192.0.2.7 @2\n\
        customer.test CAA 0 issue \"ca.example; validationmethods=http-01\"\n\
        ! customer.test servfail @3\n\
        zone sub.customer.test\n";

    #[test]
    fn records_differ_by_nameserver_and_wildcards_fill_in() {
        let (zones, wrong) = Zones::parse(FILE);
        assert_eq!(wrong, [""; 0]);
        let target = Value::Cname("x.edge.tollhouse.localhost".to_owned());
        assert_eq!(zones.records("shop.customer.test", 1), [&target]);
        let foreign = Value::A("192.0.2.7".parse().unwrap());
        assert_eq!(zones.records("shop.customer.test", 2), [&target, &foreign]);
        let home = Value::A(Ipv4Addr::LOCALHOST);
        assert_eq!(zones.records("x.edge.tollhouse.localhost", 1), [&home]);
        assert!(zones.records("nowhere.customer.test", 1).is_empty());
        assert!(zones.exists("customer.test", 1) && !zones.exists("nowhere.test", 1));
        assert_eq!(zones.misbehaviour("customer.test", 3), Some(Misbehaviour::ServFail));
        assert_eq!(zones.misbehaviour("customer.test", 1), None);
    }

    #[test]
    fn every_name_has_a_zone_and_a_line_may_cut_it() {
        let (zones, _) = Zones::parse(FILE);
        for (name, zone) in [
            ("shop.customer.test", Some("customer.test")),
            ("a.b.sub.customer.test", Some("sub.customer.test")),
            ("customer.test", Some("customer.test")),
            ("test", None),
        ] {
            assert_eq!(zones.zone_of(name).as_deref(), zone, "{name}");
        }
    }

    #[test]
    fn unreadable_lines_are_reported_with_their_number() {
        let (_, wrong) =
            Zones::parse("shop.test A here\nshop.test MX 1\n! shop.test asleep\nshop.test A 192.0.2.1 @9\nx\n");
        assert_eq!(wrong.len(), 5);
        assert!(wrong[0].starts_with("line 1: an A record has an IPv4 address"), "{wrong:?}");
    }

    #[test]
    fn setting_a_record_replaces_only_that_record() {
        let changed = set(FILE, "shop.customer.test", "cname", "y.edge.tollhouse.localhost");
        let (zones, wrong) = Zones::parse(&changed);
        assert_eq!(wrong, [""; 0]);
        assert_eq!(zones.records("shop.customer.test", 1), [&Value::Cname("y.edge.tollhouse.localhost".to_owned())]);
        assert!(changed.starts_with("# a comment\n") && changed.contains("192.0.2.7"));
        let cleared = without(&changed, "shop.customer.test", None);
        assert!(!cleared.contains("shop.customer.test") && cleared.contains("servfail"));
    }
}
