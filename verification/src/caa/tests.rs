//! Vectors: the ruling of the records at each level for `letsencrypt.org` with our account and proofs by HTTP-01 and
//! TLS-ALPN-01.

use super::*;
use crate::facts::NoAnswer;

const ACCOUNT: &str = "https://ca.example/acct/7";

fn us() -> CaaIdentity {
    CaaIdentity {
        domain: "letsencrypt.org".to_owned(),
        account_uri: Some(ACCOUNT.to_owned()),
        methods: vec!["http-01".to_owned(), "tls-alpn-01".to_owned()],
    }
}

/// Levels from `"flags tag value"` lines; `!` is a failed lookup.
fn levels(spec: &[(&str, &[&str])]) -> Vec<CaaLevel> {
    let level = |(name, lines): &(&str, &[&str])| CaaLevel {
        name: (*name).to_owned(),
        records: if *lines == ["!"] {
            Err(NoAnswer::ServFail)
        } else {
            Ok(lines.iter().map(|line| record(line)).collect())
        },
    };
    spec.iter().map(level).collect()
}

fn record(line: &str) -> CaaRecord {
    let mut parts = line.splitn(3, ' ');
    let mut part = || parts.next().unwrap_or_default();
    CaaRecord { flags: part().parse().unwrap(), tag: part().to_owned(), value: part().as_bytes().to_vec() }
}

fn shop(records: &[&str]) -> CaaRuling {
    rule(&levels(&[("shop.customer.com", records), ("customer.com", &["0 issue digicert.com"])]), &us(), false)
}

fn both() -> CaaRuling {
    CaaRuling::Permits(us().methods)
}

fn forbids(place: &str) -> CaaRuling {
    CaaRuling::Forbids(place.to_owned())
}

// rule: 1.18
// promise: domains.17
#[test]
fn only_the_closest_name_with_records_decides() {
    let climb = |spec: &[(&str, &[&str])]| rule(&levels(spec), &us(), false);
    assert_eq!(climb(&[]), both(), "1: nothing anywhere");
    assert_eq!(climb(&[("a.b.c", &[]), ("b.c", &[]), ("c", &[])]), both(), "2: empty at every level");
    assert_eq!(climb(&[("a.b", &[]), ("b", &["0 issue digicert.com"])]), forbids("b"), "3: the parent forbids");
    assert_eq!(climb(&[("a.b", &[]), ("b", &["0 issue letsencrypt.org"])]), both(), "4: the parent permits");
    assert_eq!(climb(&[("a.b", &["0 issue letsencrypt.org"]), ("b", &["0 issue ;"])]), both(), "5: closest wins");
    assert_eq!(climb(&[("a.b", &[]), ("b", &[]), ("c", &["0 issue ;"])]), forbids("c"), "6: as far as the TLD");
    assert_eq!(climb(&[("a.b", &["!"]), ("b", &[])]), CaaRuling::Unknown("a.b".to_owned()), "7: failed before any");
    assert_eq!(climb(&[("a.b", &["0 issue letsencrypt.org"]), ("b", &["!"])]), both(), "8: a failure above is ignored");
    assert_eq!(climb(&[("a.b", &[]), ("b", &["!"])]), CaaRuling::Unknown("b".to_owned()), "9: failed on the way");
}

#[test]
fn any_of_several_issue_properties_suffices() {
    assert_eq!(shop(&["0 issue digicert.com", "0 issue letsencrypt.org"]), both(), "10");
    assert_eq!(shop(&["0 issue digicert.com", "0 issue sectigo.com"]), forbids("shop.customer.com"), "11");
    assert_eq!(shop(&["0 ISSUE letsencrypt.org"]), both(), "12: tags in any case");
    assert_eq!(shop(&["0 issue LetsEncrypt.org"]), forbids("shop.customer.com"), "13: domains exactly");
    assert_eq!(shop(&["0 issue  \tletsencrypt.org \t"]), both(), "14: blanks around");
}

#[test]
fn an_empty_issuer_forbids_every_authority() {
    assert_eq!(shop(&["0 issue ;"]), forbids("shop.customer.com"), "15");
    assert_eq!(shop(&["0 issue "]), forbids("shop.customer.com"), "16");
    assert_eq!(shop(&["0 issue ;", "0 issue letsencrypt.org"]), both(), "17: another property still permits");
}

#[test]
fn properties_that_do_not_matter_do_not_forbid() {
    assert_eq!(shop(&["0 iodef mailto:security@customer.com"]), both(), "18: only a contact");
    assert_eq!(shop(&["0 issuewild ;"]), both(), "19: wildcards only");
    assert_eq!(shop(&["0 future value"]), both(), "20: unknown and not critical");
    assert_eq!(shop(&["128 iodef mailto:a@b"]), both(), "21: known and critical");
    assert_eq!(shop(&["128 issuemail ;"]), both(), "22: mail is known");
}

// promise: domains.17
#[test]
fn unknown_critical_properties_forbid() {
    let critical = |without_it_too| CaaRuling::Critical("shop.customer.com".to_owned(), without_it_too);
    assert_eq!(shop(&["128 future value", "0 issue letsencrypt.org"]), critical(false), "23");
    assert_eq!(shop(&["1 future value", "0 issue letsencrypt.org"]), critical(false), "24: the wrong bit");
    assert_eq!(shop(&["128 future value"]), critical(false), "24: alone");
    assert_eq!(shop(&["128 future value", "0 issue ;"]), critical(true), "24: and forbidden without it too");
    assert_eq!(shop(&["2 future value", "0 issue letsencrypt.org"]), both(), "25: a bit without meaning");
}

// promise: domains.17
#[test]
fn for_wildcards_issuewild_has_precedence() {
    let wild = |records: &[&str]| rule(&levels(&[("customer.com", records)]), &us(), true);
    assert_eq!(wild(&["0 issue ;", "0 issuewild letsencrypt.org"]), both(), "26");
    assert_eq!(wild(&["0 issue letsencrypt.org", "0 issuewild ;"]), forbids("customer.com"), "27");
    assert_eq!(wild(&["0 issue letsencrypt.org"]), both(), "28");
    assert_eq!(wild(&["0 iodef mailto:a@b"]), both(), "29");
}

// promise: domains.17
#[test]
fn an_account_can_be_required() {
    let other = CaaRuling::OtherAccount("shop.customer.com".to_owned());
    assert_eq!(shop(&["0 issue letsencrypt.org; accounturi=https://ca.example/acct/7"]), both(), "30");
    assert_eq!(shop(&["0 issue letsencrypt.org; accounturi=https://ca.example/acct/8"]), other, "31");
    let twice = "0 issue letsencrypt.org; accounturi=https://ca.example/acct/7; accounturi=https://ca.example/acct/7";
    assert_eq!(shop(&[twice]), other, "32: repeated, it can never be satisfied");
    assert_eq!(shop(&["0 issue letsencrypt.org; AccountURI=https://x"]), both(), "33: another parameter's name");
    let unregistered = CaaIdentity { account_uri: None, ..us() };
    let pinned = levels(&[("b", &["0 issue letsencrypt.org; accounturi=https://ca.example/acct/7"])]);
    assert_eq!(rule(&pinned, &unregistered, false), CaaRuling::OtherAccount("b".to_owned()), "34: no account yet");
}

// promise: domains.17
#[test]
fn methods_can_be_required() {
    let only = |method: &str| CaaRuling::Permits(vec![method.to_owned()]);
    let other = CaaRuling::OtherMethod("shop.customer.com".to_owned());
    assert_eq!(shop(&["0 issue letsencrypt.org; validationmethods=http-01"]), only("http-01"), "35");
    assert_eq!(shop(&["0 issue letsencrypt.org;validationmethods=dns-01,tls-alpn-01"]), only("tls-alpn-01"), "36");
    assert_eq!(shop(&["0 issue letsencrypt.org; validationmethods=dns-01"]), other, "37");
    let twice = "0 issue letsencrypt.org; validationmethods=http-01; validationmethods=http-01";
    assert_eq!(shop(&[twice]), other, "38");
    assert_eq!(shop(&["0 issue letsencrypt.org; validationmethods=http_01,http-01"]), other, "39: malformed");
}

// promise: domains.17
#[test]
fn malformed_properties_permit_no_authority() {
    assert_eq!(shop(&["0 issue letsencrypt.org; "]), both(), "40: a lone semicolon is fine");
    assert_eq!(shop(&["0 issue letsencrypt.org; policy"]), forbids("shop.customer.com"), "41");
    assert_eq!(shop(&["0 issue letsencrypt.org; a b=c"]), forbids("shop.customer.com"), "42");
    assert_eq!(shop(&["0 issue letsencrypt.org; a=b c"]), forbids("shop.customer.com"), "43");
    assert_eq!(shop(&["0 issue letsencrypt.org; account=230123; policy=ev"]), both(), "44: unknown parameters");
    let binary = CaaRecord { flags: 0, tag: "issue".to_owned(), value: vec![0xff, 0xfe] };
    let levels = [CaaLevel { name: "b".to_owned(), records: Ok(vec![binary]) }];
    assert_eq!(rule(&levels, &us(), false), forbids("b"), "45: not text");
}
