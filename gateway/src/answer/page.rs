//! A refusal as an HTML page for visitors of a site, with the request id, in place of the error body.
//!
//! A site may have its own page ([`ErrorPage`]); only four names in braces are replaced in it.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use pingora::{ErrorType, OrErr as _};

use super::Refusal;
use crate::decorate::ResponseSink;
use crate::request_id::RequestId;
use upstreams::ErrorPage;

const USUAL: &str = include_str!("page.html");

/// Allows only its own style; a site's own page has the site's own policy.
const POLICY: &[u8] = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

/// Whether a client explicitly accepts HTML, as browsers do for pages, and scripts and programs do not.
pub(crate) fn accepts_html(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_html = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/html"));
        is_html && !parts.any(|part| matches!(part.strip_prefix("q=").map(str::parse::<f32>), Some(Ok(0.0))))
    })
}

impl Refusal {
    /// Writes status and fields to `out`; returns the site's page or ours.
    pub(crate) fn write_page(
        &self,
        own: Option<&ErrorPage>,
        id: &RequestId,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        let status = StatusCode::from_u16(self.rejection.status());
        let status = status.or_err(ErrorType::InternalError, "a status of our own")?;
        out.status(status, status.canonical_reason().unwrap_or_default())?;
        self.write_fields("text/html; charset=utf-8", out)?;
        out.field("Vary", b"Accept")?;
        if own.is_none() {
            out.field("Content-Security-Policy", POLICY)?;
        }
        let message = self.message.as_deref().unwrap_or_else(|| self.rejection.message());
        let page = own.map_or(USUAL, ErrorPage::text);
        let known = [
            ("{status}", status.as_str()),
            ("{code}", self.rejection.code()),
            ("{message}", &escaped(message)),
            ("{request_id}", id.as_str()),
        ];
        Ok((status, filled(page, &known).into()))
    }
}

/// Replaces every name once; inserted text is not scanned again.
fn filled(page: &str, known: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(page.len() + 256);
    let mut rest = page;
    while let Some((before, at)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
        text.push_str(before);
        let found = known.iter().find_map(|(name, value)| Some((at.strip_prefix(name)?, *value)));
        let (tail, value) = found.unwrap_or((at.get(1..).unwrap_or_default(), "{"));
        text.push_str(value);
        rest = tail;
    }
    text.push_str(rest);
    text
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['<', '>', '&', '"', '\'']) {
        return text.into();
    }
    let mut escaped = text.replace('&', "&amp;");
    for (byte, entity) in [('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")] {
        escaped = escaped.replace(byte, entity);
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_accept_html_explicitly_get_it() {
        let accepts = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, text.parse().unwrap());
            accepts_html(&headers)
        };
        assert!(accepts("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(accepts("application/json, Text/HTML;q=0.1"));
        for other in ["*/*", "application/json", "text/*", "text/html;q=0", "text/html; q=0.0", "text/htmlx", ""] {
            assert!(!accepts(other), "{other}");
        }
        assert!(!accepts_html(&HeaderMap::new()));
    }

    #[test]
    fn only_names_are_replaced_and_only_once() {
        let known = [("{status}", "502"), ("{message}", "{status}")];
        assert_eq!(filled("a{status}b{message}{x}{{status}", &known), "a502b{status}{x}{502");
        assert_eq!(filled("p { color: red }", &known), "p { color: red }");
        assert_eq!(escaped("a<b> & \"c'"), "a&lt;b&gt; &amp; &quot;c&#39;");
    }

    #[test]
    fn the_usual_page_has_every_name() {
        for name in ["{status}", "{message}", "{request_id}", "{code}"] {
            assert!(USUAL.contains(name), "{name}");
        }
    }
}
