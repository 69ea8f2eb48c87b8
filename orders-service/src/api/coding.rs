//! Content codings: chooses one (RFC 9110 section 12.5.3) and compresses the body while it is written.
//!
//! The request has already been processed when its response is compressed. A client that forbids `identity` and accepts
//! no supported coding therefore gets the plain body, which section 12.5.3 allows, and never a 406.

use std::io::{self, Write};

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body::Body as _;

/// A body with a known length below this many bytes is not compressed: it would hardly become shorter.
const SHORT: u64 = 32;

/// Supported codings, preferred first if weights are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Whether this member of `Accept-Encoding` names the coding.
    fn is(self, name: &str) -> bool {
        name.eq_ignore_ascii_case(self.name()) || (self == Self::Gzip && name.eq_ignore_ascii_case("x-gzip"))
    }
}

/// Middleware: compresses the response with the coding that the client prefers.
pub(super) async fn compressed(request: Request, next: Next) -> Response {
    let coding = preferred(request.headers()).filter(|_| request.method() != Method::HEAD);
    let mut response = next.run(request).await;
    let Some(coding) = coding.filter(|_| is_worth_it(&response)) else { return response };
    let Ok(encoder) = Encoder::new(coding) else { return response };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    headers.remove(header::CONTENT_LENGTH);
    let says_so = headers.get_all(header::VARY).iter().any(|field| {
        field
            .to_str()
            .is_ok_and(|field| field.split(',').any(|name| name.trim().eq_ignore_ascii_case("accept-encoding")))
    });
    if !says_so {
        headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    response.map(|body| encoded(body, encoder))
}

fn is_worth_it(response: &Response) -> bool {
    let is_short = response.body().size_hint().exact().is_some_and(|bytes| bytes < SHORT);
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
    !is_short && !is_part && !response.headers().contains_key(header::CONTENT_ENCODING)
}

/// The coding with the greatest weight; `None` if `identity` has a greater weight or no supported coding is accepted.
fn preferred(headers: &HeaderMap) -> Option<Coding> {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().map(|value| value.to_str().unwrap_or_default());
    let members: Vec<(&str, f32)> = lists.flat_map(|list| list.split(',')).map(weighted).collect();
    let named = |is: &dyn Fn(&str) -> bool| members.iter().find(|(name, _)| is(name)).map(|(_, weight)| *weight);
    let any = named(&|name| name == "*").unwrap_or(0.0);
    let plain = named(&|name| name.eq_ignore_ascii_case("identity")).unwrap_or(0.0);
    let mut best = None;
    for coding in Coding::ALL {
        let weight = named(&|name| coding.is(name)).unwrap_or(any);
        if weight > 0.0 && weight >= plain && best.is_none_or(|(_, so_far)| weight > so_far) {
            best = Some((coding, weight));
        }
    }
    best.map(|(coding, _)| coding)
}

/// A member of the list and its weight: 1 if missing, 0 if malformed.
fn weighted(member: &str) -> (&str, f32) {
    let mut parts = member.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q")));
    (name, weight.map_or(1.0, |(_, weight)| weight.trim().parse().unwrap_or(0.0)))
}

/// A compressor at its fastest level, which keeps the tables of each stream small. The library writes into a vector,
/// which is emptied after each piece.
enum Encoder {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        const BUFFER: usize = 4 * 1024;
        const WINDOW_BITS: u32 = 18;
        Ok(match coding {
            Coding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast())),
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), BUFFER, 1, WINDOW_BITS))),
            Coding::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 1)?),
        })
    }

    /// Compresses a piece and returns the output so far, often empty.
    fn write(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        let out = match self {
            Self::Gzip(encoder) => encoder.write_all(piece).map(|()| encoder.get_mut()),
            Self::Brotli(encoder) => encoder.write_all(piece).map(|()| encoder.get_mut()),
            Self::Zstd(encoder) => encoder.write_all(piece).map(|()| encoder.get_mut()),
        }?;
        Ok(std::mem::take(out).into())
    }

    /// Ends the body and returns the remaining output.
    fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
        .map(Bytes::from)
    }
}

/// The compressed body. If the plain body breaks off, the compressed one also ends without its closing bytes.
fn encoded(body: Body, encoder: Encoder) -> Body {
    Body::from_stream(stream::try_unfold((body.into_data_stream(), Some(encoder)), next_piece))
}

type Coded = (BodyDataStream, Option<Encoder>);

async fn next_piece((mut plain, encoder): Coded) -> Result<Option<(Bytes, Coded)>, axum::Error> {
    let Some(mut encoder) = encoder else { return Ok(None) };
    while let Some(piece) = plain.next().await {
        let out = encoder.write(&piece?).map_err(axum::Error::new)?;
        if !out.is_empty() {
            return Ok(Some((out, (plain, Some(encoder)))));
        }
    }
    Ok(Some((encoder.finish().map_err(axum::Error::new)?, (plain, None))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_weight_decides_and_no_request_is_refused() {
        for (sent, expected) in [
            ("", None),
            ("gzip", Some(Coding::Gzip)),
            ("X-GZIP", Some(Coding::Gzip)),
            ("gzip, br", Some(Coding::Brotli)),
            ("gzip, br, zstd", Some(Coding::Zstd)),
            ("gzip;q=0.1, zstd, br;q=0.5", Some(Coding::Zstd)),
            ("br;q=0.5, *;q=0, gzip", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("zstd;q=0, *;q=0.2", Some(Coding::Brotli)),
            ("identity, zstd;q=0", None),
            ("identity;q=0.5, gzip;q=0.4", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("Identity; Q=0.000 , *;q=0", None),
            ("gzip, identity;q=0", Some(Coding::Gzip)),
            ("gzip;q=0", None),
            ("gzip;q=x", None),
            ("deflate, compress", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, sent.parse().unwrap());
            assert_eq!(preferred(&headers), expected, "{sent}");
        }
    }
}
