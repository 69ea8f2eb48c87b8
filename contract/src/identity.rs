//! Who a request turned out to be, signed by the gateway and verified by services.
//!
//! The gateway authenticates; services authorise. What passes between them is a [token](crate::token). A request without a
//! valid one did not come through the gateway and is refused.
//!
//! Before there were tokens it was a signature with a shared secret, [`IdentityKey`]: `Tollhouse-Identity:
//! v1.<payload>.<signature>`, the payload JSON in unpadded base64url, the signature HMAC-SHA-256 over the method, the
//! request target and the payload. Gateways that have the platform's secret send it too, and services take it where there
//! is no token, so that an installation is upgraded one process after the other.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::key::{Environment, KeyId, Scopes};
use crate::plan::Plan;
use crate::project::{ProjectId, ProjectUid};
use crate::time::UnixSeconds;

/// The header's name, lower case.
pub const IDENTITY_HEADER: &str = "tollhouse-identity";

/// How far the clocks of gateway and service may differ, and how long a signed header is worth anything, in seconds.
pub const IDENTITY_AGE_MAX_SECONDS: i64 = 60;

/// Bytes of the JSON of a request with a key.
const PAYLOAD_BYTES_USUAL: usize = 512;

/// 32 bytes in unpadded base64.
const SIGNATURE_LETTERS: usize = 43;

/// The holder of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The key's public name.
    pub key: KeyId,
    /// The name of the project it belongs to.
    pub project: ProjectId,
    /// The identity of that project, which services keep its data under; absent as in
    /// [`crate::project::Project::uid`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_uid: Option<ProjectUid>,
    /// The project's plan.
    pub plan: Plan,
    /// What the key may do.
    pub scopes: Scopes,
    /// The deployment the key belongs to.
    pub environment: Environment,
}

impl Caller {
    /// Which project the key belongs to, whatever that is called.
    pub fn project_identity(&self) -> ProjectUid {
        self.project_uid.clone().unwrap_or_else(|| ProjectUid::of_old(&self.project))
    }
}

/// What the gateway vouches for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The request's id, as in the access log and `X-Request-Id`.
    pub request_id: String,
    /// The client's address as the gateway saw it.
    pub client: IpAddr,
    /// The project whose site was asked; absent on the platform's own hosts.
    pub site_project: Option<ProjectId>,
    /// The caller; absent where the site needs no key.
    pub caller: Option<Caller>,
    /// When the gateway signed, by its clock.
    pub issued_at: UnixSeconds,
}

/// Why an identity is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentity {
    /// Not of the form `v1.<payload>.<signature>`.
    #[error("malformed identity")]
    Malformed,
    /// Not signed with this platform's key, or for another request.
    #[error("identity signature does not match")]
    Signature,
    /// Older or younger than [`IDENTITY_AGE_MAX_SECONDS`].
    #[error("identity is too old or from the future")]
    Age,
}

/// The key both sides share. Not printable.
#[derive(Clone)]
pub struct IdentityKey(hmac::Key);

impl IdentityKey {
    /// From the platform's secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The header value for `identity` on a request with this method and target (path and query as forwarded).
    pub fn sign(&self, identity: &Identity, method: &str, target: &str) -> String {
        let mut payload = Vec::with_capacity(PAYLOAD_BYTES_USUAL);
        // Writing text into memory cannot fail; a payload that is cut would not be believed.
        let _ = serde_json::to_writer(&mut payload, identity);
        // One buffer holds what is signed, the payload at its end; another the header.
        let mut signed = String::with_capacity(method.len() + target.len() + 2 + payload.len() * 4 / 3 + 4);
        signed_beginning(&mut signed, method, target);
        let begins = signed.len();
        URL_SAFE_NO_PAD.encode_string(&payload, &mut signed);
        let tag = hmac::sign(&self.0, signed.as_bytes());
        let payload = signed.get(begins..).unwrap_or_default();
        let mut header = String::with_capacity("v1..".len() + payload.len() + SIGNATURE_LETTERS);
        for part in ["v1.", payload, "."] {
            header.push_str(part);
        }
        URL_SAFE_NO_PAD.encode_string(tag, &mut header);
        header
    }

    /// The identity in a header value, if this platform's gateway signed it for this request lately.
    pub fn verify(
        &self,
        header: &str,
        method: &str,
        target: &str,
        now: UnixSeconds,
    ) -> Result<Identity, InvalidIdentity> {
        let (payload, signature) =
            header.strip_prefix("v1.").and_then(|rest| rest.split_once('.')).ok_or(InvalidIdentity::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| InvalidIdentity::Malformed)?;
        let mut signed = String::with_capacity(method.len() + target.len() + 2 + payload.len());
        signed_beginning(&mut signed, method, target);
        signed.push_str(payload);
        hmac::verify(&self.0, signed.as_bytes(), &signature).map_err(|_| InvalidIdentity::Signature)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| InvalidIdentity::Malformed)?;
        let mut identity: Identity = serde_json::from_slice(&payload).map_err(|_| InvalidIdentity::Malformed)?;
        // A gateway of an earlier version says `::ffff:192.0.2.1` where it listens for both versions of IP.
        identity.client = identity.client.to_canonical();
        if (now.0 - identity.issued_at.0).abs() > IDENTITY_AGE_MAX_SECONDS {
            return Err(InvalidIdentity::Age);
        }
        Ok(identity)
    }
}

/// What is signed before the payload. A line feed occurs in none of the parts, so no two triples give the same text.
fn signed_beginning(out: &mut String, method: &str, target: &str) {
    for part in [method, "\n", target, "\n"] {
        out.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Scope;

    fn identity() -> Identity {
        Identity {
            request_id: "r1".to_owned(),
            client: "192.0.2.1".parse().unwrap(),
            site_project: Some("demo".parse().unwrap()),
            caller: None,
            issued_at: UnixSeconds(1_000),
        }
    }

    #[test]
    fn a_signed_identity_is_believed_for_its_request_and_its_minute() {
        let key = IdentityKey::new(b"secret");
        let header = key.sign(&identity(), "GET", "/v1/store/orders");
        assert_eq!(key.verify(&header, "GET", "/v1/store/orders", UnixSeconds(1_030)), Ok(identity()));
        assert_eq!(
            key.verify(&header, "DELETE", "/v1/store/orders", UnixSeconds(1_030)),
            Err(InvalidIdentity::Signature)
        );
        assert_eq!(
            key.verify(&header, "GET", "/v1/store/orders/1", UnixSeconds(1_030)),
            Err(InvalidIdentity::Signature)
        );
        for moved in [("GET/v1", "/store/orders"), ("GE", "T/v1/store/orders"), ("GET\n/v1", "/store/orders")] {
            let found = key.verify(&header, moved.0, moved.1, UnixSeconds(1_030));
            assert_eq!(found, Err(InvalidIdentity::Signature), "a part may not lend letters to another: {moved:?}");
        }
        let other = IdentityKey::new(b"another secret");
        assert_eq!(
            other.verify(&header, "GET", "/v1/store/orders", UnixSeconds(1_030)),
            Err(InvalidIdentity::Signature)
        );
    }

    #[test]
    fn a_client_has_one_address_however_its_gateway_wrote_it() {
        let key = IdentityKey::new(b"secret");
        let mapped = Identity { client: "::ffff:192.0.2.1".parse().unwrap(), ..identity() };
        let header = key.sign(&mapped, "GET", "/");
        assert_eq!(key.verify(&header, "GET", "/", UnixSeconds(1_000)), Ok(identity()));
    }

    #[test]
    fn an_identity_is_believed_for_a_minute_on_either_side_of_its_moment() {
        let key = IdentityKey::new(b"secret");
        let header = key.sign(&identity(), "GET", "/");
        let at = |now| key.verify(&header, "GET", "/", UnixSeconds(now));
        for now in [940, 941, 1_000, 1_059, 1_060] {
            assert_eq!(at(now), Ok(identity()), "{now}");
        }
        for now in [0, 939, 1_061, 9_999] {
            assert_eq!(at(now), Err(InvalidIdentity::Age), "{now}");
        }
    }

    /// Headers that another program signed with the secret `secret`, for the requests of [`REQUEST`].
    const OF_A_CALLER: &str = concat!(
        "v1.eyJyZXF1ZXN0X2lkIjoicjEiLCJjbGllbnQiOiIxOTIuMC4yLjEiLCJzaXRlX3Byb2plY3QiOiJkZW1vIiwiY2FsbGVyIjp7ImtleSI6I",
        "mtleV9hYmNkZWZnaGlqMjM0NTY3IiwicHJvamVjdCI6ImRlbW8iLCJwbGFuIjoicHJvIiwic2NvcGVzIjpbIm9yZGVyczpyZWFkIiwib3JkZX",
        "JzOndyaXRlIl0sImVudmlyb25tZW50IjoibGl2ZSJ9LCJpc3N1ZWRfYXQiOjEwMDB9.KE6Eq8GWjuyhQRO6ref06BJN5cJyJorGn-ieZNX9dsE"
    );
    const OF_NOBODY: &str = concat!(
        "v1.eyJyZXF1ZXN0X2lkIjoicjIiLCJjbGllbnQiOiIyMDAxOmRiODo6MSIsInNpdGVfcHJvamVjdCI6bnVsbCwiY2FsbGVyIjpudWxsLCJpc3",
        "N1ZWRfYXQiOjEwMDB9.uOzcFC73N24yw0q9GVAZhNIRumKOecKuBKygphy2_SI"
    );
    const REQUEST: (&str, &str) = ("GET", "/v1/store/orders?limit=5");

    // Gateways and services of different versions meet while a platform is updated.
    #[test]
    fn an_identity_is_written_as_other_versions_read_it() {
        let key = IdentityKey::new(b"secret");
        let caller = Caller {
            key: "key_abcdefghij234567".parse().unwrap(),
            project: "demo".parse().unwrap(),
            project_uid: None,
            plan: Plan::Pro,
            scopes: [Scope::OrdersRead, Scope::OrdersWrite].into_iter().collect(),
            environment: Environment::Live,
        };
        let of_a_caller = Identity { caller: Some(caller), ..identity() };
        let of_nobody = Identity {
            request_id: "r2".to_owned(),
            client: "2001:db8::1".parse().unwrap(),
            site_project: None,
            ..identity()
        };
        for (identity, header) in [(of_a_caller, OF_A_CALLER), (of_nobody, OF_NOBODY)] {
            assert_eq!(key.sign(&identity, REQUEST.0, REQUEST.1), header);
            assert_eq!(key.verify(header, REQUEST.0, REQUEST.1, UnixSeconds(1_000)), Ok(identity));
        }
    }

    #[test]
    fn garbage_is_malformed_and_a_wrong_signature_is_not_looked_behind() {
        let key = IdentityKey::new(b"secret");
        let said = |header: &str| key.verify(header, "GET", "/", UnixSeconds(0)).unwrap_err();
        for header in ["", "v1", "v1.a", "v2.a.b", "v1.a.!", "a.b.c", "V1.a.YQ", "v1.a.YQ=="] {
            assert_eq!(said(header), InvalidIdentity::Malformed, "{header}");
        }
        for header in ["v1.a.YQ", "v1.!.YQ", "v1..", OF_NOBODY] {
            assert_eq!(said(header), InvalidIdentity::Signature, "{header}");
        }
        // Signed, and yet no identity: what a gateway of a version to come may send.
        for payload in ["!", "YQ", "e30"] {
            let tag = hmac::sign(&key.0, format!("GET\n/\n{payload}").as_bytes());
            let header = format!("v1.{payload}.{}", URL_SAFE_NO_PAD.encode(tag));
            assert_eq!(said(&header), InvalidIdentity::Malformed, "{header}");
        }
    }
}
