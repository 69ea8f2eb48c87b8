//! The catalogue of the gateway's refusals.
//!
//! A refusal is one variant here: its status, code, blame and message. The listener (before a request exists), the
//! pipeline and the forwarder all use it, so every refusal has the error body of the specification, one metric and one
//! log line, and a heading in `docs/reference/errors.md`.

use std::sync::LazyLock;

use crate::error::ErrorBody;

crate::text::words! {
    /// Who must act.
    pub enum Blame {
        /// The sender of the request.
        Client = "client",
        /// The owner of the project or domain.
        Customer = "customer",
        /// The operator of the platform.
        Platform = "platform",
        /// The upstream.
        Upstream = "upstream",
    }
}

crate::text::words! {
    /// Which clients can get a refusal of the gateway.
    pub enum Met {
        /// All clients, whatever host they request.
        Anywhere = "anywhere",
        /// Clients that request a host of a project. The platform's own hosts are always published and never suspended.
        AtProjects = "at_projects",
    }
}

/// An entry of a catalogue, for tables and documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeEntry {
    /// The machine-readable code.
    pub code: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The party that must act.
    pub blame: Blame,
    /// What led to the refusal: one or two sentences.
    pub cause: &'static str,
}

/// A refusal of some catalogue.
pub trait Coded: Copy {
    /// The HTTP status.
    fn status(self) -> u16;
    /// The machine-readable code.
    fn code(self) -> &'static str;
    /// The default message, if the code that refuses gives no other; may be empty.
    fn message(self) -> &'static str;
}

/// Declares a catalogue of refusals: the cause (its documentation), status, code, an optional default message, who has
/// to act, and for the gateway's refusals which clients can get it.
///
/// ```
/// contract::catalogue! {
///     /// Refusals of a shop.
///     enum Refusal {
///         /// There is none left.
///         SoldOut = 409 "sold_out" "Come again tomorrow.", Client;
///     }
/// }
/// assert_eq!((Refusal::SoldOut.status(), Refusal::SoldOut.code()), (409, "sold_out"));
/// assert_eq!(Refusal::entries().next().unwrap().cause, "There is none left.");
/// ```
#[macro_export]
macro_rules! catalogue {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $(
        $(#[doc = $cause:literal])+
        $variant:ident = $status:literal $code:literal $($message:literal)?, $blame:ident $($met:ident)?;
    )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[doc = $cause])+ $variant,)+ }

        #[allow(dead_code, reason = "not every catalogue is asked for all of it")]
        impl $name {
            /// Every refusal, in the order of the catalogue.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// The machine-readable code, unique in the catalogue and stable.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The default message for the client; its wording may change.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $crate::schema::first(&[$($message)?]),)+ }
            }

            /// The party that must act.
            pub const fn blame(self) -> $crate::rejection::Blame {
                match self { $(Self::$variant => $crate::rejection::Blame::$blame,)+ }
            }

            /// Every refusal as an entry of a table, in the order of the catalogue.
            pub fn entries() -> impl Iterator<Item = $crate::rejection::CodeEntry> {
                [$((Self::$variant, concat!($($cause),+)),)+].into_iter().map(|(refusal, cause)| {
                    $crate::rejection::CodeEntry {
                        code: refusal.code(),
                        status: refusal.status(),
                        blame: refusal.blame(),
                        cause: cause.trim_ascii_start(),
                    }
                })
            }

            /// The clients that can get it, if the catalogue names them.
            const fn met_by(self) -> &'static [$crate::rejection::Met] {
                match self { $(Self::$variant => &[$($crate::rejection::Met::$met)?],)+ }
            }
        }

        impl $crate::rejection::Coded for $name {
            fn status(self) -> u16 {
                self.status()
            }

            fn code(self) -> &'static str {
                self.code()
            }

            fn message(self) -> &'static str {
                self.message()
            }
        }
    };
}

catalogue! {
    /// One refusal of the gateway.
    pub enum Rejection {
        // --- 400: the message itself is wrong; nothing of it reached an upstream --------------------------------------
        /// The request line or a header line is not HTTP.
        BadRequest = 400 "bad_request" "The request is not well-formed HTTP.", Client Anywhere;
        /// Content-Length, Transfer-Encoding or the chunks are ambiguous.
        BadFraming = 400 "bad_framing" "The length of the request body is stated in a way that could be read differently by different servers. Send either one Content-Length or Transfer-Encoding: chunked.", Client Anywhere;
        /// Host is missing, repeated or not a hostname.
        BadHost = 400 "bad_host" "Send exactly one Host header that names one host.", Client Anywhere;
        /// The request target has forbidden bytes or forms.
        BadTarget = 400 "bad_target" "The path or query has a character that must be percent-encoded, or a `.` or `..` segment.", Client Anywhere;
        /// A header name with an underscore: some servers treat `X_User` and `X-User` as one header.
        UnderscoreHeader = 400 "underscore_header" "Header names with underscores are not accepted; use hyphens.", Client Anywhere;
        /// A body for an operation without one.
        BodyNotAllowed = 400 "body_not_allowed" "This operation accepts no request body.", Client Anywhere;
        /// `Connection` names a header that must not be removed.
        BadConnectionHeader = 400 "bad_connection_header" "The Connection header names a header that is not hop-by-hop.", Client Anywhere;
        // --- 401 ------------------------------------------------------------------------------------------------------
        /// No `Authorization` header.
        MissingApiKey = 401 "missing_api_key" "Send your API key: Authorization: Bearer <API_KEY>.", Client Anywhere;
        /// The key is malformed, unknown, revoked, or belongs to another project or deployment.
        InvalidApiKey = 401 "invalid_api_key" "The API key is not valid here.", Client Anywhere;
        /// The key has expired.
        ExpiredApiKey = 401 "expired_api_key" "The API key has expired. Create or rotate a key.", Client Anywhere;
        // --- 403 ------------------------------------------------------------------------------------------------------
        /// A key was sent over plain HTTP.
        HttpsRequired = 403 "https_required" "API keys are accepted over https only. This key travelled unencrypted: rotate it.", Client Anywhere;
        /// The project is suspended.
        ProjectSuspended = 403 "project_suspended" "This project is suspended. Contact the operator of the platform.", Customer AtProjects;
        // --- 404, 405 -------------------------------------------------------------------------------------------------
        /// No site has this name.
        UnknownHost = 404 "unknown_host" "Nothing is published under this hostname.", Client AtProjects;
        /// The site has no such path.
        NotFound = 404 "not_found" "There is nothing at this path.", Client Anywhere;
        /// The path exists, the method does not.
        MethodNotAllowed = 405 "method_not_allowed" "The method is not allowed here; the Allow header lists those that are.", Client Anywhere;
        // --- 408 to 431: sizes and times ------------------------------------------------------------------------------
        /// The head or the body arrived too slowly.
        RequestTimeout = 408 "request_timeout" "The request was not received in time.", Client Anywhere;
        /// The body is larger than the operation accepts.
        BodyTooLarge = 413 "body_too_large" "The request body is too large.", Client Anywhere;
        /// The request target is longer than 8 KiB.
        UriTooLong = 414 "uri_too_long" "The request target is longer than 8192 bytes.", Client Anywhere;
        /// The operation does not accept the content type or encoding of the body.
        UnsupportedMediaType = 415 "unsupported_media_type" "The content type or content encoding is not accepted here.", Client Anywhere;
        /// `Expect` other than `100-continue` on a request with a body.
        ExpectationFailed = 417 "expectation_failed" "The only supported expectation is 100-continue, on a request with a body.", Client Anywhere;
        /// The name of the TLS handshake and the name of the request belong to different tenants.
        MisdirectedRequest = 421 "misdirected_request" "This connection was opened for another hostname. Open a new connection for this one.", Client Anywhere;
        /// More than 32 KiB of headers, 100 fields, or 8 KiB in one.
        HeadersTooLarge = 431 "headers_too_large" "The request headers are too large: at most 100 fields, 8 KiB each, 32 KiB together.", Client Anywhere;
        // --- 429 ------------------------------------------------------------------------------------------------------
        /// The minute is used up.
        RateLimitExceeded = 429 "rate_limit_exceeded" "The limit of requests per minute is reached. Retry after the time in Retry-After.", Client Anywhere;
        /// The day is used up.
        DailyQuotaExceeded = 429 "daily_quota_exceeded" "The limit of requests per day is reached. Retry after the time in Retry-After, or choose a higher plan.", Client Anywhere;
        /// Too many requests followed a 429.
        ApiKeyBanned = 429 "api_key_banned" "The API key is banned for a while because it kept sending after 429. Back off and retry after the time in Retry-After.", Client Anywhere;
        /// Too many failed authentications from one address.
        TooManyAuthFailures = 429 "too_many_auth_failures" "Too many requests without a valid API key came from this address. Retry after the time in Retry-After.", Client Anywhere;
        /// A project, or one visitor of its site, has too many requests in progress at an upstream.
        TooManyInProgress = 429 "too_many_in_progress" "Too many requests of this project are in progress. Retry when some have ended.", Client Anywhere;
        // --- 5xx ------------------------------------------------------------------------------------------------------
        /// A fault of the platform.
        InternalError = 500 "internal_error" "The platform failed to process the request. Report the X-Request-Id of this response to the operator.", Platform Anywhere;
        /// The method or the transfer coding is not supported.
        NotImplemented = 501 "not_implemented" "The transfer coding is not supported.", Client Anywhere;
        /// No connection to the upstream.
        UpstreamUnreachable = 502 "upstream_unreachable" "The service behind this site cannot be reached.", Upstream Anywhere;
        /// The TLS handshake with the upstream failed, because of its certificate or ours.
        UpstreamTls = 502 "upstream_tls" "A secure connection to the service behind this site cannot be made.", Upstream Anywhere;
        /// The upstream broke off or sent an invalid response.
        UpstreamInvalid = 502 "upstream_invalid" "The service behind this site sent an invalid response.", Upstream Anywhere;
        /// Too many requests in progress.
        Overloaded = 503 "overloaded" "Too many requests are in progress. Retry shortly.", Platform Anywhere;
        /// The quota store is unavailable and the configuration says to refuse.
        QuotaUnavailable = 503 "quota_unavailable" "Rate limiting is unavailable. Retry shortly.", Platform Anywhere;
        /// The upstream refuses the gateway's identity token: a clock or a signing key of the platform is wrong.
        IdentityRefused = 503 "identity_refused" "The service behind this site rejected the gateway's identity token. Retry shortly.", Platform Anywhere;
        /// The gateway has no replica yet.
        Starting = 503 "starting" "The gateway is starting. Retry shortly.", Platform Anywhere;
        /// The site names an upstream that this gateway does not have.
        UpstreamUnknown = 503 "upstream_unknown" "The service behind this site is not configured on this gateway.", Platform Anywhere;
        /// The upstream did not answer in time.
        UpstreamTimeout = 504 "upstream_timeout" "The service behind this site did not answer in time.", Upstream Anywhere;
        /// The HTTP version is not supported.
        VersionNotSupported = 505 "version_not_supported" "Use HTTP/1.1 or HTTP/2.", Client Anywhere;
    }
}

impl Rejection {
    /// Which clients can get it.
    pub const fn met(self) -> Met {
        match self.met_by() {
            [met, ..] => *met,
            [] => Met::Anywhere,
        }
    }

    /// Whether a request with this refusal, before an upstream answered it, costs no quota: because of a fault of ours,
    /// or because other requests of its project or visitor are in progress.
    pub const fn is_free(self) -> bool {
        matches!(self.blame(), Blame::Platform) || matches!(self, Self::TooManyInProgress)
    }

    /// The error body with the catalogue's message.
    pub fn body(self) -> ErrorBody {
        ErrorBody::new(self.status(), self.code(), self.message())
    }

    /// That body as JSON text, serialised once for all requests.
    pub fn json(self) -> &'static str {
        static ALL: LazyLock<Vec<String>> =
            LazyLock::new(|| Rejection::ALL.iter().map(|rejection| rejection.body().to_json()).collect());
        // Variants are numbered in the order of the catalogue.
        ALL.get(self as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_snake_case_and_every_status_is_an_error() {
        let mut seen = std::collections::HashSet::new();
        for rejection in Rejection::ALL {
            assert!(seen.insert(rejection.code()), "{} appears twice", rejection.code());
            assert!(rejection.code().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!((400..600).contains(&rejection.status()), "{rejection:?}");
            assert!(rejection.message().ends_with('.'), "{rejection:?}");
            assert_eq!(rejection.json(), rejection.body().to_json());
            assert_eq!(rejection.met_by().len(), 1, "{rejection:?} does not say who can get it");
        }
    }
}
