//! Checks path, method and body against the upstream's routes, and acquires a permit for a request in progress and
//! memory for it.

use std::sync::Arc;

use http::Method;

use super::Pipeline;
use crate::answer::{Answer, Refusal};
use crate::facts::{Facts, Surface, Target};
use crate::forward::hops_left;
use crate::request::EdgeRequest;
use contract::rejection::Rejection;
use listener::fields::has_underscore;
use listener::head::has_dot_segments;
use upstreams::fields::Underscores;
use upstreams::{Bulkhead, Busy, RouteError};

const TOO_MANY_OF_ADDRESS: &str =
    "Too many requests from your address are in progress here. Retry when some have ended.";

impl Pipeline {
    pub(super) fn route(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<Target, Answer> {
        let upstream = facts.upstream.configured.clone().ok_or(Rejection::UpstreamUnknown)?;
        if has_dot_segments(request.path) {
            return Err(Rejection::BadTarget.into());
        }
        let refuses = upstream.settings.fields.underscores == Underscores::Refuse;
        if refuses && request.headers.keys().any(|name| has_underscore(name.as_str())) {
            return Err(Rejection::UnderscoreHeader.into());
        }
        if *request.method == Method::OPTIONS && hops_left(request.headers) == Some(0) {
            return Err(Answer::Options { methods: upstream.routes.methods(request.path).unwrap_or_default() });
        }
        if *request.method == Method::OPTIONS && facts.surface == Surface::Api && !facts.caller.is_preflight {
            let methods = upstream.routes.methods(request.path).ok_or(Rejection::NotFound)?;
            return Err(Answer::Options { methods });
        }
        let limit = upstream.settings.body_bytes_max;
        let picked = if facts.caller.is_preflight {
            upstream.routes.pick_preflight(request.path, request.body)
        } else {
            upstream.routes.pick(request.method, request.path, request.body, limit)
        };
        let body_bytes_max = match picked {
            Ok(limit) => limit,
            Err(RouteError::NotFound) => return Err(Rejection::NotFound.into()),
            Err(RouteError::Method(allow)) => {
                return Err(Refusal::new(Rejection::MethodNotAllowed).with("Allow", &allow).into());
            }
            Err(RouteError::BodyNotAllowed) => return Err(Rejection::BodyNotAllowed.into()),
            Err(RouteError::BodyTooLarge) => return Err(Rejection::BodyTooLarge.into()),
        };
        // WebSocket is only for public sites: an upgraded connection of an API would cost one unit for any duration.
        facts.connection.upgrade = request.wants_upgrade && facts.surface == Surface::Site;
        if request.is_tunnel && !facts.connection.upgrade {
            let allow = upstream.routes.methods(request.path).unwrap_or_default();
            return Err(Refusal::new(Rejection::MethodNotAllowed).with("Allow", &allow).into());
        }
        // The permit is charged to the paying project: on the platform's own hosts, which all projects share, that is
        // the key's project. Without a key it is the site's project, and its visitor. The project's identity counts, so
        // that a later project with the same name is not affected.
        let payer = facts.caller.payer.as_ref().or(facts.project.as_ref()).map(|project| project.uid.clone());
        let visitor = facts.caller.key.is_none().then_some(request.client);
        let acquire = |permits: &Arc<Bulkhead>| permits.acquire(payer.as_ref(), visitor).map_err(too_many);
        let permit = acquire(upstream.permits(false))?;
        // Until the upstream has accepted the WebSocket, it is a request in progress as well.
        let websocket_permit = if facts.connection.upgrade { Some(acquire(upstream.permits(true))?) } else { None };
        let plan = facts.project.as_ref().map(|project| project.plan);
        let reservation = self.overload.reserve(plan, payer.as_ref()).ok_or(Rejection::Overloaded)?;
        Ok(Target { upstream: upstream.clone(), body_bytes_max, permit, websocket_permit, reservation })
    }
}

fn too_many(busy: Busy) -> Refusal {
    match busy {
        Busy::Upstream => Refusal::new(Rejection::Overloaded),
        Busy::Project => Refusal::new(Rejection::TooManyInProgress).retry_after(1),
        Busy::Visitor => Refusal::new(Rejection::TooManyInProgress).retry_after(1).with_message(TOO_MANY_OF_ADDRESS),
    }
}
