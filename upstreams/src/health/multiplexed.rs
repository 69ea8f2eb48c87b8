//! Health checks over HTTP/2.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Response, Version};

use crate::Stream;

/// The most bytes of an answer that are read; a usual one has seven.
const ANSWER_BYTES_MAX: usize = 64;

/// `SERVING` as the only field of the answer (`HealthCheckResponse.status`), after the five-byte prefix of messages.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 0x01];

/// Whether a GET is answered with 2xx.
pub(super) async fn get(stream: Stream, host: &str, path: &str) -> anyhow::Result<bool> {
    let request = Request::get(format!("http://{host}{path}")).header("user-agent", "tollhouse");
    let (response, _) = send(stream, request.body(())?, None).await?;
    Ok(response.status().is_success())
}

/// Whether gRPC's health check is answered with `SERVING`.
pub(super) async fn grpc(stream: Stream, host: &str, service: &str) -> anyhow::Result<bool> {
    let scheme = if stream.is_tls() { "https" } else { "http" };
    let request = Request::post(format!("{scheme}://{host}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "tollhouse");
    let (response, answer) = send(stream, request.body(())?, Some(question(service)?)).await?;
    let (mut body, well) = (response.into_body(), answer == SERVING);
    // Without trailers the status is unknown.
    let trailers = body.trailers().await?;
    Ok(well && trailers.as_ref().and_then(|fields| fields.get("grpc-status")).is_some_and(|status| status == "0"))
}

/// `HealthCheckRequest.service`, as one message.
fn question(service: &str) -> anyhow::Result<Bytes> {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_slice(&[0x0a, u8::try_from(service.len())?]);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len())?);
    framed.put_slice(&message);
    Ok(framed.freeze())
}

async fn send(
    stream: Stream,
    mut request: Request<()>,
    body: Option<Bytes>,
) -> anyhow::Result<(Response<h2::RecvStream>, Vec<u8>)> {
    *request.version_mut() = Version::HTTP_2;
    let (sender, connection) = h2::client::handshake(stream).await?;
    // It ends with the last handle.
    let _driven = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    let (response, mut sending) = sender.ready().await?.send_request(request, body.is_none())?;
    if let Some(body) = body {
        sending.send_data(body, true)?;
    }
    let mut response = response.await?;
    let mut answer = Vec::new();
    while let Some(piece) = response.body_mut().data().await {
        answer.extend_from_slice(&piece?);
        anyhow::ensure!(answer.len() <= ANSWER_BYTES_MAX || response.status().is_success(), "body too large");
        if answer.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    Ok((response, answer))
}
