//! Reads requests. Every malformed request gets an Error body.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRef, FromRequest, FromRequestParts, Query, RawPathParams, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use chassis::body::{self, BodyError};
use chassis::openapi::{NeededScope, Parameter};
use chassis::refusal::Refusal;
use contract::schema::json;
use contract::text::is_deceptive;
use contract::time::UnixMillis;
pub(super) use domains_api::types::Field;
use serde::de::DeserializeOwned;

use crate::actor::Actor;
use crate::app::App;
use crate::common::Core;
use crate::error::{ApiError, ApiResult, Code};
use crate::project::ProjectRef;

/// The largest request body, in bytes: the largest report of a gateway fits.
pub(crate) const BODY_BYTES_MAX: usize = contract::usage::REPORT_BYTES_MAX;

/// The cursor of a list that is ordered by name.
pub(super) const CURSOR: Parameter = Parameter::query("cursor", CURSOR_MEANS, || json!({ "type": "string" }));

/// The cursor of a list that is ordered by time of creation.
pub(super) const MOMENT_CURSOR: Parameter = Parameter::query(
    "cursor",
    CURSOR_MEANS,
    || json!({ "type": "string", "pattern": "^[1-9][0-9]{0,14}\\.[A-Za-z0-9_-]{1,40}$" }),
);

/// The cursor of a list that is ordered by number.
pub(super) const NUMBER_CURSOR: Parameter =
    Parameter::query("cursor", CURSOR_MEANS, || json!({ "type": "string", "pattern": "^[1-9][0-9]{0,17}$" }));

const CURSOR_MEANS: &str = "`next_cursor` of the page before.";

/// The number of items of a page.
pub(super) const LIMIT: Parameter = Parameter::query(
    "limit",
    "Items of a page.",
    || json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }),
);

/// Reads the whole body, up to a maximum. Each listener checks credentials on both sides of this layer: before it,
/// so that a stranger cannot hold a connection, and after it, because a credential can be revoked while the body is on its way.
pub(crate) async fn whole_body(State(bytes_max): State<usize>, request: Request, next: Next) -> ApiResult {
    let request = body::whole(request, bytes_max).await.map_err(of_body)?;
    Ok(next.run(request).await)
}

fn of_body(error: BodyError) -> Refusal {
    let code = match error {
        BodyError::TooLarge(_) => Code::BodyTooLarge,
        BodyError::Late => Code::RequestTimeout,
        BodyError::Broken => Code::InvalidBody,
    };
    code.refuse(error.to_string())
}

/// A JSON body. An empty one reads as `{}`.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> ApiResult<Self> {
        let must_say = *request.method() == Method::PATCH;
        let bytes = to_bytes(request.into_body(), BODY_BYTES_MAX).await.map_err(|_| of_body(BodyError::Broken))?;
        if bytes.is_empty() && must_say {
            return Code::InvalidBody.fail("Send the changes as a JSON object.");
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        chassis::json::object(text)
            .map(Self)
            .map_err(|error| Code::InvalidBody.refuse(format!("The body is invalid: {error}.")).into())
    }
}

/// Seconds for which an old secret stays valid beside the new one: `asked`, from 0 to `max`.
pub(super) fn overlap(asked: Option<i64>, default: u32, max: u32) -> ApiResult<u32> {
    let seconds = asked.map_or(Some(default), |seconds| u32::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds <= max)
        .ok_or_else(|| Code::InvalidBody.refuse(format!("overlap_seconds is a whole number from 0 to {max}.")).into())
}

/// Refuses a text for lists, terminals and pages if it is too long or contains characters that could
/// deceive readers.
pub(super) fn name_text(field: &str, text: &str, characters_max: usize) -> ApiResult<()> {
    if text.chars().count() > characters_max {
        return Code::InvalidBody.fail(format!("{field} has at most {characters_max} characters."));
    }
    let Some(letter) = text.chars().find(|letter| is_deceptive(*letter)) else { return Ok(()) };
    let number = u32::from(letter);
    let message = format!(
        "{field} contains U+{number:04X}: control characters and those that change the direction of text are not allowed."
    );
    Code::InvalidBody.fail(message)
}

fn nothing_here() -> ApiError {
    Code::NotFound.refuse("There is nothing at this path.").into()
}

/// The parameters of the path, in order.
pub(super) struct Path<const N: usize>(pub(super) [String; N]);

async fn parameters(parts: &mut Parts, state: &(impl Send + Sync)) -> ApiResult<Vec<String>> {
    let parameters = RawPathParams::from_request_parts(parts, state).await.map_err(|_| nothing_here())?;
    Ok(parameters.iter().map(|(_, value)| value.to_owned()).collect())
}

impl<const N: usize, S: Send + Sync> FromRequestParts<S> for Path<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        parameters(parts, state).await?.try_into().map(Self).map_err(|_| nothing_here())
    }
}

/// The project in a path, for an actor with the scope of the operation: all operations under `/projects/{project}`.
/// The rest of a request is read afterwards.
pub(super) struct Authorised<const N: usize = 0, P = Arc<Core>> {
    /// The part of the service that the operation uses.
    pub(super) part: P,
    /// The caller.
    pub(super) actor: Actor,
    /// The project.
    pub(super) project: ProjectRef,
    /// The other parameters of the path, in order.
    pub(super) rest: [String; N],
}

impl<const N: usize, P: FromRef<App>> FromRequestParts<App> for Authorised<N, P> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> ApiResult<Self> {
        let (actor, scope) = (parts.extensions.get::<Actor>().cloned(), parts.extensions.get::<NeededScope>().copied());
        let known = actor.zip(scope);
        let (actor, scope) = known.ok_or_else(|| Code::InternalError.refuse("The request has no actor or scope."))?;
        let mut parameters = parameters(parts, app).await?.into_iter();
        let project = parameters.next().ok_or_else(nothing_here)?;
        let rest = parameters.collect::<Vec<_>>().try_into().map_err(|_| nothing_here())?;
        let project = actor.authorise(&project, scope.0)?;
        Ok(Self { part: P::from_ref(app), actor, project, rest })
    }
}

/// Query parameters.
pub(super) struct Params(HashMap<String, String>);

impl Params {
    /// The text of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter that parses, or `default` when it is absent.
    pub(super) fn value<T: std::str::FromStr>(&self, name: &str, default: T, expected: &str) -> ApiResult<T> {
        let Some(text) = self.0.get(name) else { return Ok(default) };
        text.parse().map_err(|_| Code::InvalidQuery.refuse(format!("{name} must be {expected}.")).into())
    }

    /// The start of a page, newest number first: the `cursor`, or the newest.
    pub(super) fn number_cursor(&self) -> ApiResult<i64> {
        /// The numbers that [`NUMBER_CURSOR`] describes: at most 18 digits, and no second spelling of any.
        const NUMBER_MAX: i64 = 999_999_999_999_999_999;
        let Some(text) = self.text("cursor") else { return Ok(i64::MAX) };
        let number = text.parse::<i64>().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
        number.filter(|number| number.to_string() == text).ok_or_else(unknown_cursor)
    }

    /// The start of a page in order of creation: the `cursor`, or the oldest.
    pub(super) fn moment_cursor(&self) -> ApiResult<(i64, String)> {
        let Some(text) = self.text("cursor") else { return Ok((i64::MIN, String::new())) };
        let parts = text.split_once('.').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
        let is_id = |id: &str| {
            (1..=40).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let is_ours = |(at, id): &(i64, String)| *at > 0 && is_id(id) && moment_cursor(UnixMillis(*at), id) == text;
        parts.filter(is_ours).ok_or_else(unknown_cursor)
    }

    /// How many items a page has: 1 to 200, by default 50.
    pub(super) fn limit(&self) -> ApiResult<i64> {
        let expected = "a number from 1 to 200";
        match self.value("limit", 50_i64, expected)? {
            limit @ 1..=200 => Ok(limit),
            _ => Code::InvalidQuery.fail(format!("limit must be {expected}.")),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        let read = Query::try_from_uri(&parts.uri).map(|Query(parameters)| Self(parameters));
        read.map_err(|_| Code::InvalidQuery.refuse("The query is not well-formed.").into())
    }
}

fn unknown_cursor() -> ApiError {
    Code::InvalidQuery.refuse("cursor must be the next_cursor of an earlier answer.").into()
}

/// The cursor of the page after the item created at this time with this id.
pub(super) fn moment_cursor(at: UnixMillis, id: &str) -> String {
    format!("{}.{id}", at.0)
}
