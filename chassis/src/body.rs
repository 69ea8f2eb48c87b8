//! Reads request bodies completely and within bounds.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// The longest time from a request's head to the end of its body.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Why a body cannot be used. The text tells the client what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It has more than this many bytes.
    TooLarge(usize),
    /// It did not arrive in time.
    Late,
    /// The client sent malformed data, or disconnected.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(bytes_max) => write!(f, "Send at most {bytes_max} bytes."),
            Self::Late => {
                write!(f, "The body did not arrive within {} seconds. Send the request again.", TIME_MAX.as_secs())
            }
            Self::Broken => f.write_str("The body ended before it was complete. Send the request again."),
        }
    }
}

/// Reads the whole body into the request.
///
/// Check a client's credential before this, so that a client without a credential cannot occupy a connection, and again
/// after it: the credential may be revoked while the body arrives.
///
/// # Errors
/// If the body is larger than `bytes_max` (at once if its head says so), takes longer than 10 seconds, or is cut off.
pub async fn whole(request: Request, bytes_max: usize) -> Result<Request, BodyError> {
    let (parts, body) = request.into_parts();
    let bytes = bytes(&parts.headers, body, bytes_max).await?;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The bytes of a body that came with these header fields. See [`whole`] for when to check credentials.
///
/// # Errors
/// Like [`whole`].
pub async fn bytes(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > bytes_max) {
        return Err(BodyError::TooLarge(bytes_max));
    }
    let read = tokio::time::timeout(TIME_MAX, Limited::new(body, bytes_max).collect()).await;
    let read = read.map_err(|_| BodyError::Late)?.map_err(|error| {
        if error.is::<LengthLimitError>() { BodyError::TooLarge(bytes_max) } else { BodyError::Broken }
    })?;
    Ok(read.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{StreamExt as _, stream};

    use super::*;

    async fn read(pieces: Vec<io::Result<&'static str>>) -> Result<Bytes, BodyError> {
        let body = Body::from_stream(stream::iter(pieces));
        let request = whole(Request::new(body), 4).await?;
        Ok(request.into_body().collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn a_body_is_complete_or_an_error_names_the_reason() {
        assert_eq!(read(vec![Ok("ab"), Ok("cd")]).await.unwrap(), "abcd");
        assert_eq!(read(vec![Ok("abc"), Ok("de")]).await, Err(BodyError::TooLarge(4)));
        assert_eq!(read(vec![Ok("ab"), Err(io::ErrorKind::ConnectionReset.into())]).await, Err(BodyError::Broken));
    }

    #[tokio::test]
    async fn a_body_announced_as_too_large_is_refused_at_once() {
        let mut request = Request::new(Body::from_stream(stream::pending::<io::Result<Bytes>>()));
        request.headers_mut().insert(header::CONTENT_LENGTH, 5.into());
        assert_eq!(whole(request, 4).await.err(), Some(BodyError::TooLarge(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_times_out() {
        let begun = stream::iter([Ok::<_, io::Error>("ab")]).chain(stream::pending());
        let request = Request::new(Body::from_stream(begun));
        assert_eq!(whole(request, 4).await.err(), Some(BodyError::Late));
    }
}
