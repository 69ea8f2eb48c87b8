//! Redirects from plain HTTP and from secondary domains to the final URL, in exactly one hop.
//!
//! Path and query are copied from the request byte for byte. The host is a stored hostname, never request data, and the
//! configuration cannot chain redirects, so loops and open redirects are impossible.

use contract::site::{Redirect, RedirectStatus};

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;

impl Pipeline {
    pub(super) fn redirect_to_primary(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        let redirects = facts.site.as_ref().is_some_and(|site| site.redirect.is_some());
        if redirects { Err(self.redirect_to_final_url(request, facts)) } else { Ok(()) }
    }

    /// The redirect to the final URL: https, and the primary domain if the site has one.
    pub(super) fn redirect_to_final_url(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Answer {
        facts.surface = Surface::Redirect;
        let redirect = facts.site.as_ref().and_then(|site| site.redirect.as_ref());
        let host = redirect.map_or(&request.host, |redirect| &redirect.to);
        let target = if request.target == "*" { "/" } else { request.target };
        let location = match self.https_port.get().copied().unwrap_or(443) {
            443 => format!("https://{host}{target}"),
            port => format!("https://{host}:{port}{target}"),
        };
        Answer::Redirect { status: status(redirect, request), location }
    }
}

/// The site's status; otherwise 301, which clients may turn into a GET, only for GET and HEAD.
fn status(redirect: Option<&Redirect>, request: &EdgeRequest<'_>) -> RedirectStatus {
    redirect.and_then(|redirect| redirect.status).unwrap_or(if request.is_read() {
        RedirectStatus::MovedPermanently
    } else {
        RedirectStatus::PermanentRedirect
    })
}
