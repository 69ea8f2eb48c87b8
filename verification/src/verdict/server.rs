//! Judges the answer of one nameserver.

use std::net::IpAddr;

use crate::facts::{DnsAnswer, NoAnswer, ServerFacts};
use crate::networks::proxy_of;

/// The verdict on one nameserver's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVerdict {
    /// It points at us by a CNAME that only this project has.
    Ok,
    /// It points at us by addresses, which all projects share, so they do not identify the project.
    OkByAddress,
    /// A CNAME at an apex: it points at us, but many resolvers mishandle it.
    OkApexCname,
    /// No such record.
    Missing,
    /// The name has no records; a wildcard answers instead, and its records do not point to the platform.
    Wildcard,
    /// A CNAME that points elsewhere.
    CnameMismatch,
    /// A CNAME that points at us through another name.
    CnameChained,
    /// An address where a CNAME must be.
    ConflictingA,
    /// An IPv6 address where a CNAME must be.
    ConflictingAaaa,
    /// Addresses of both kinds where a CNAME must be.
    ConflictingBoth,
    /// Addresses of a content delivery network.
    Proxied,
    /// An apex with addresses that are not ours.
    AddressMismatch,
    /// It gave no usable answer.
    Unknown(NoAnswer),
}

impl ServerVerdict {
    /// Whether it points at us.
    pub fn is_ok(self) -> bool {
        matches!(self, Self::Ok | Self::OkByAddress | Self::OkApexCname)
    }

    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok | Self::OkByAddress => "ok",
            Self::OkApexCname => "ok_apex_cname",
            Self::Missing => "missing",
            Self::CnameMismatch => "cname_mismatch",
            Self::CnameChained => "cname_chained",
            Self::ConflictingA => "conflicting_a",
            Self::ConflictingAaaa => "conflicting_aaaa",
            Self::ConflictingBoth => "conflicting_a_and_aaaa",
            Self::Proxied => "proxied",
            Self::AddressMismatch => "address_mismatch",
            Self::Wildcard => "wildcard",
            Self::Unknown(why) => why.as_str(),
        }
    }
}

/// Judges one nameserver's answer. `chain`: the CNAME chain of the name, as a resolver sees it.
pub(super) fn judge(
    server: &ServerFacts,
    target: &str,
    edge: &[IpAddr],
    apex: bool,
    chain: &[String],
) -> ServerVerdict {
    let verdict = judge_answer(server, target, edge, apex, chain);
    match verdict {
        ServerVerdict::Unknown(_) => verdict,
        // A wildcard's records block nothing: a record of the name itself takes precedence.
        _ if server.wildcard.is_some() && !verdict.is_ok() => ServerVerdict::Wildcard,
        _ => verdict,
    }
}

fn judge_answer(server: &ServerFacts, target: &str, edge: &[IpAddr], apex: bool, chain: &[String]) -> ServerVerdict {
    match &server.cname {
        DnsAnswer::Failed(why) => ServerVerdict::Unknown(*why),
        DnsAnswer::Is(cname) if cname.eq_ignore_ascii_case(target) && apex => ServerVerdict::OkApexCname,
        DnsAnswer::Is(cname) if cname.eq_ignore_ascii_case(target) => ServerVerdict::Ok,
        DnsAnswer::Is(cname) if leads_on(chain, cname, target) => ServerVerdict::CnameChained,
        DnsAnswer::Is(_) => ServerVerdict::CnameMismatch,
        DnsAnswer::Nothing => judge_addresses(server, edge, apex),
    }
}

/// Whether the chain leads through this name to the target. Checking only its end is not enough: nameservers may
/// disagree, and the resolver may have asked a correct one.
fn leads_on(chain: &[String], through: &str, target: &str) -> bool {
    let is = |name: &str| chain.iter().position(|link| link.eq_ignore_ascii_case(name));
    matches!((is(through), is(target)), (Some(through), Some(target)) if through < target)
}

fn judge_addresses(server: &ServerFacts, edge: &[IpAddr], apex: bool) -> ServerVerdict {
    let v4 = server.a.iter().copied().map(IpAddr::V4);
    let v6 = server.aaaa.iter().copied().map(IpAddr::V6);
    let addresses: Vec<IpAddr> = v4.chain(v6).collect();
    if addresses.is_empty() {
        return ServerVerdict::Missing;
    }
    if apex && !server.a.is_empty() && addresses.iter().all(|address| edge.contains(address)) {
        return ServerVerdict::OkByAddress;
    }
    if addresses.iter().any(|address| proxy_of(*address).is_some()) {
        return ServerVerdict::Proxied;
    }
    if apex {
        return ServerVerdict::AddressMismatch;
    }
    match (server.a.is_empty(), server.aaaa.is_empty()) {
        (false, false) => ServerVerdict::ConflictingBoth,
        (true, _) => ServerVerdict::ConflictingAaaa,
        (false, true) => ServerVerdict::ConflictingA,
    }
}
