//! What one nameserver's answer means.

use std::net::IpAddr;

use crate::facts::{Answer, ServerFacts, Why};
use crate::networks::proxy_of;

/// What one nameserver's answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVerdict {
    /// It leads to us, by a record that only this project has.
    Ok,
    /// It leads to us by addresses, which all projects share: whose it is they do not say.
    OkByAddress,
    /// A CNAME at an apex: it leads to us, though many resolvers dislike it.
    OkApexCname,
    /// No such record.
    Missing,
    /// None of its own: a wildcard's records, which do not lead to us, answer in its place.
    Wildcard,
    /// A CNAME that leads elsewhere.
    CnameMismatch,
    /// A CNAME that leads to us by way of another name.
    CnameChained,
    /// An address where a CNAME must be.
    ConflictingA,
    /// An IPv6 address where a CNAME must be.
    ConflictingAaaa,
    /// Addresses of both kinds where a CNAME must be.
    ConflictingBoth,
    /// Addresses of a content delivery network.
    Proxied,
    /// An apex whose addresses are not ours.
    AddressMismatch,
    /// It gave no usable answer.
    Unknown(Why),
}

impl ServerVerdict {
    /// Whether it leads to us.
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
            Self::Unknown(Why::Timeout) => "timeout",
            Self::Unknown(Why::ServFail) => "servfail",
            Self::Unknown(Why::Lame) => "lame",
            Self::Unknown(Why::Malformed) => "malformed",
            Self::Unknown(Why::NoAddress) => "no_address",
            Self::Unknown(Why::Unreachable) => "unreachable",
            Self::Unknown(Why::Bogus) => "dnssec_bogus",
            Self::Wildcard => "wildcard",
        }
    }
}

/// Judges one nameserver's answer. `chain`: where the CNAME chain that starts at the name leads, as a resolver sees it.
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
        // What stands at the wildcard is in nobody's way: a record of the name itself counts before it.
        _ if server.wildcard.is_some() && !verdict.is_ok() => ServerVerdict::Wildcard,
        _ => verdict,
    }
}

fn judge_answer(server: &ServerFacts, target: &str, edge: &[IpAddr], apex: bool, chain: &[String]) -> ServerVerdict {
    match &server.cname {
        Answer::Failed(why) => ServerVerdict::Unknown(*why),
        Answer::Is(cname) if cname.eq_ignore_ascii_case(target) && apex => ServerVerdict::OkApexCname,
        Answer::Is(cname) if cname.eq_ignore_ascii_case(target) => ServerVerdict::Ok,
        Answer::Is(cname) if leads_on(chain, cname, target) => ServerVerdict::CnameChained,
        Answer::Is(_) => ServerVerdict::CnameMismatch,
        Answer::Nothing => judge_addresses(server, edge, apex),
    }
}

/// Whether the chain leads through this name to the target. That it ends there is not enough: nameservers may disagree,
/// and the resolver may have asked one that is right.
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
