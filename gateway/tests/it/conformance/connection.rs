//! Preface, settings, PING and GOAWAY: RFC 9113 sections 3.4, 6.5, 6.7 and 6.8.

use super::Outcome::{Answered, Connection, Served, Stream};
use super::Step::{Begun, Ended, Send};
use super::{Asks, Case, FLOW_CONTROL_ERROR, GENERAL_CODE, NO_ERROR, SIZE, WRONG, case, hold, script};
use crate::world::frames::{ACK, GOAWAY, PING, PREFACE, SETTINGS, frame, headers, preface, settings, window_update};
use crate::world::{DEMO, ORDERS};

fn prefaces(asks: &Asks<'_>) -> Vec<Case> {
    let list = headers(1, &asks.list(), true);
    let rest = [settings(&[]), list.clone()].concat();
    let http_1 = format!("GET {ORDERS} HTTP/1.1\r\nHost: {DEMO}\r\n\r\n");
    let lower = [&b"pri * http/2.0\r\n\r\nsm\r\n\r\n"[..], &rest].concat();
    let one_byte = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"[..], &rest].concat();
    let in_bytes = PREFACE.iter().map(|byte| Send(vec![*byte])).chain([Send(rest)]).collect();
    vec![
        case("HTTP/1.1 where HTTP/2 was agreed", "3.4", http_1, WRONG).raw(),
        case("a preface in lower case", "3.4", lower, WRONG).raw(),
        case("a preface with a wrong last byte", "3.4", one_byte, WRONG).raw(),
        case("frames without a preface", "3.4", [settings(&[]), list.clone()].concat(), WRONG).raw(),
        script("a preface in single bytes", "3.4", in_bytes, Served(&[1])).raw(),
        case("a request with the preface", "3.4", [preface(), list.clone()].concat(), Served(&[1])).raw(),
        // h2 does not require SETTINGS first. Until they come the defaults hold, as with empty settings.
        case("a preface without SETTINGS", "3.4", [PREFACE, &list].concat(), WRONG).instead(Served(&[1])).raw(),
    ]
}

fn of_settings(asks: &Asks<'_>) -> Vec<Case> {
    let wrong = |name, section, id, value| case(name, section, settings(&[(id, value)]), WRONG);
    let sized = |name, length| case(name, "6.5", frame(SETTINGS, 0, 0, &vec![0; length]), SIZE).instead(GENERAL_CODE);
    let ack = frame(SETTINGS, ACK, 0, &[]);
    let all = settings(&[(1, 4_096), (2, 0), (3, 100), (4, 65_535), (5, 16_384), (6, 65_536)]);
    let largest = settings(&[(1, u32::MAX), (2, 1), (3, u32::MAX), (4, 0x7fff_ffff), (5, 0x00ff_ffff), (6, u32::MAX)]);
    let unknown = settings(&[(0, 1), (7, 1), (0x0a0a, u32::MAX), (0xffff, 0)]);
    let twice = [settings(&[(4, 0), (4, 65_535)]), headers(1, &asks.keyless(), true)].concat();
    vec![
        case("ACK with settings", "6.5", frame(SETTINGS, ACK, 0, &[0; 6]), SIZE).instead(GENERAL_CODE),
        case("SETTINGS on a stream", "6.5", frame(SETTINGS, 0, 1, &[]), WRONG),
        case("ACK on a stream", "6.5", frame(SETTINGS, ACK, 1, &[]), WRONG),
        sized("SETTINGS of 1 byte", 1),
        sized("SETTINGS of 5 bytes", 5),
        sized("SETTINGS of 7 bytes", 7),
        wrong("ENABLE_PUSH 2", "6.5.2", 2, 2),
        wrong("ENABLE_PUSH 2^32-1", "6.5.2", 2, u32::MAX),
        case("INITIAL_WINDOW_SIZE 2^31", "6.5.2", settings(&[(4, 1 << 31)]), Connection(&[FLOW_CONTROL_ERROR]))
            .instead(GENERAL_CODE),
        wrong("MAX_FRAME_SIZE 0", "6.5.2", 5, 0),
        wrong("MAX_FRAME_SIZE 2^14-1", "6.5.2", 5, (1 << 14) - 1),
        wrong("MAX_FRAME_SIZE 2^24", "6.5.2", 5, 1 << 24),
        wrong("ENABLE_CONNECT_PROTOCOL 2", "RFC 8441 3", 8, 2),
        case("a bad value before a good one", "6.5.3", settings(&[(2, 2), (2, 0)]), WRONG),
        case("all settings", "6.5.2", all, Answered(ack.clone())),
        case("all settings at their largest", "6.5.2", largest, Answered(ack.clone())),
        case("unknown settings", "6.5.2", unknown, Answered(ack.clone())),
        case("SETTINGS three times", "6.5.3", settings(&[]).repeat(3), Answered(ack.repeat(3))),
        case("a setting twice, the last counts", "6.5.3", twice, Stream(1, &[])),
    ]
}

fn pings(_: &Asks<'_>) -> Vec<Case> {
    let ping = |flags, text: &[u8; 8]| frame(PING, flags, 0, text);
    let sized = |name, length| case(name, "6.7", frame(PING, 0, 0, &vec![0; length]), SIZE).instead(GENERAL_CODE);
    let others = [ping(ACK, b"unasked!"), ping(0, b"question")].concat();
    vec![
        case("PING", "6.7", ping(0, b"question"), Answered(ping(ACK, b"question"))),
        case("PING with flags that have no meaning", "4.1", ping(0xfe, b"question"), Answered(ping(ACK, b"question"))),
        case(
            "two PINGs",
            "6.7",
            [ping(0, b"question"), ping(0, b"another!")].concat(),
            Answered([ping(ACK, b"question"), ping(ACK, b"another!")].concat()),
        ),
        case("an ACK is not answered", "6.7", others, Answered(ping(ACK, b"question"))),
        case("PING on a stream", "6.7", frame(PING, 0, 1, b"question"), WRONG),
        case("ACK of a PING on a stream", "6.7", frame(PING, ACK, 1, b"question"), WRONG),
        sized("PING of 0 bytes", 0),
        sized("PING of 7 bytes", 7),
        sized("PING of 9 bytes", 9),
    ]
}

fn goaways(asks: &Asks<'_>) -> Vec<Case> {
    let goaway = |code: u32| frame(GOAWAY, 0, 0, &[[0; 4], code.to_be_bytes()].concat());
    let ends = Connection(&[NO_ERROR]);
    let debug = frame(GOAWAY, 0, 0, &[&[0; 8][..], b"for people"].concat());
    let busy = vec![
        Send([settings(&[(4, 0)]), headers(1, &asks.keyless(), true)].concat()),
        Begun(1),
        Send([goaway(NO_ERROR), window_update(1, 10_000)].concat()),
        Ended(1),
    ];
    vec![
        case("GOAWAY on an idle connection", "6.8", goaway(NO_ERROR), ends.clone()),
        case("GOAWAY with an unknown code", "7", goaway(0xff00_00ff), ends.clone()),
        case("GOAWAY with text", "6.8", debug, ends.clone()),
        script("GOAWAY while a response is on its way", "6.8", busy, ends),
        case("GOAWAY on a stream", "6.8", frame(GOAWAY, 0, 1, &[0; 8]), WRONG),
        case("GOAWAY of 7 bytes", "6.8", frame(GOAWAY, 0, 0, &[0; 7]), SIZE).instead(GENERAL_CODE),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_bad_preface_ends_the_connection() {
    hold(prefaces).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_settings_are_checked_and_acknowledged() {
    hold(of_settings).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_ping_is_answered_once_and_with_its_own_bytes() {
    hold(pings).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_goaway_ends_the_connection_when_its_requests_are_done() {
    hold(goaways).await;
}
