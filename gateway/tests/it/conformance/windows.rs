//! Flow control: RFC 9113 sections 5.2 and 6.9.

use super::Outcome::{Connection, Ignored, Reset};
use super::peer::Peer;
use super::{Asks, Case, FLOW_CONTROL_ERROR, GENERAL_CODE, PROTOCOL_ERROR, SIZE, WHOLE_CONNECTION, WRONG, case, hold};
use crate::world::frames::{WINDOW_UPDATE, frame, headers, settings, window_update};
use crate::world::upstream::Act;
use crate::world::{DEMO, World, within};

/// The largest possible window.
const LARGEST: u32 = 0x7fff_ffff;
/// The window of a stream by default.
const INITIAL: u32 = 65_535;

const OVERFLOW: super::Outcome = Connection(&[FLOW_CONTROL_ERROR]);

fn updates(asks: &Asks<'_>) -> Vec<Case> {
    let open = asks.open();
    let on_stream =
        |name, section, bytes: Vec<u8>, outcome| case(name, section, [open.clone(), bytes].concat(), outcome).cut();
    let sized =
        |name, length| case(name, "6.9", frame(WINDOW_UPDATE, 0, 0, &vec![1; length]), SIZE).instead(GENERAL_CODE);
    let overflow = Reset(1, &[FLOW_CONTROL_ERROR]);
    let halves = [window_update(1, LARGEST / 2), window_update(1, LARGEST / 2)].concat();
    let by_settings = [window_update(1, LARGEST - INITIAL), settings(&[(4, INITIAL + 1)])].concat();
    vec![
        case("an increment of 0 on the connection", "6.9", window_update(0, 0), WRONG),
        on_stream("an increment of 0 on a stream", "6.9", window_update(1, 0), Reset(1, &[PROTOCOL_ERROR]))
            .instead(WHOLE_CONNECTION),
        sized("WINDOW_UPDATE of 3 bytes", 3),
        sized("WINDOW_UPDATE of 5 bytes", 5),
        case("the reserved bit of an increment", "6.9", window_update(0, 0x8000_0001), Ignored),
        case("a window of the connection as large as may be", "6.9.1", window_update(0, LARGEST - INITIAL), Ignored),
        case("a window of the connection too large by 1", "6.9.1", window_update(0, LARGEST - INITIAL + 1), OVERFLOW),
        case(
            "a window of the connection too large in two steps",
            "6.9.1",
            [window_update(0, LARGEST / 2), window_update(0, LARGEST / 2 + 1)].concat(),
            OVERFLOW,
        ),
        on_stream(
            "a window of a stream too large by 1",
            "6.9.1",
            window_update(1, LARGEST - INITIAL + 1),
            overflow.clone(),
        ),
        on_stream("a window of a stream too large in two steps", "6.9.1", halves, overflow),
        on_stream("a window of a stream too large by settings", "6.9.2", by_settings, OVERFLOW),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_windows_never_grow_beyond_their_limit() {
    hold(updates).await;
}

/// RFC 9113 sections 6.9.1 and 6.9.2: a window that settings make negative must be refilled before another byte comes.
// promise: edge.14
#[tokio::test]
async fn over_http_2_a_response_keeps_to_the_clients_window() {
    let world = World::start().await;
    let asks = Asks::of(&world);
    world.orders.next(Act::body("200 OK", "a response of 26 bytes ..."));
    let mut peer = Peer::connect(&world, DEMO).await;
    peer.open().await;
    within(async {
        peer.send(&[settings(&[(4, 0)]), headers(1, &asks.list(), true)].concat()).await;
        assert!(peer.until(|seen| seen.stream(1).status.is_some()).await, "cut off");
        assert_eq!(peer.seen.stream(1).data, [0; 0], "the window is closed");
        peer.send(&window_update(1, 1)).await;
        assert!(peer.until(|seen| !seen.stream(1).data.is_empty()).await, "cut off");
        assert_eq!(peer.seen.stream(1).data, [1]);
        // The settings open it by ten, and then set it to minus ten.
        peer.send(&settings(&[(4, 10)])).await;
        assert!(peer.until(|seen| seen.stream(1).data.len() == 2).await, "cut off");
        assert_eq!(peer.seen.stream(1).data, [1, 10]);
        peer.send(&[settings(&[(4, 0)]), window_update(1, 10), window_update(1, 2)].concat()).await;
        assert!(peer.until(|seen| seen.stream(1).data.len() == 3).await, "cut off");
        assert_eq!(peer.seen.stream(1).data, [1, 10, 2]);
        peer.send(&window_update(1, 1_000)).await;
        assert!(peer.until(|seen| seen.stream(1).is_over()).await, "cut off");
    })
    .await;
    let stream = peer.seen.stream(1);
    assert_eq!((stream.data.iter().sum::<usize>(), stream.ended), (26, true), "{}", peer.seen);
}

/// RFC 9113 sections 4.2 and 6.5.2.
// promise: edge.14
#[tokio::test]
async fn over_http_2_no_frame_exceeds_the_clients_maximum() {
    let world = World::start().await;
    let asks = Asks::of(&world);
    for (largest, settings) in [(16_384, settings(&[])), (20_000, settings(&[(5, 20_000)]))] {
        world.orders.next(Act::body("200 OK", &"x".repeat(60_000)));
        let mut peer = Peer::connect(&world, DEMO).await;
        peer.open().await;
        within(async {
            peer.send(&[settings, headers(1, &asks.list(), true)].concat()).await;
            assert!(peer.until(|seen| seen.stream(1).is_over()).await, "cut off");
        })
        .await;
        let stream = peer.seen.stream(1);
        assert_eq!((stream.data.iter().sum::<usize>(), stream.is_served()), (60_000, true), "{}", peer.seen);
        assert!(stream.data.iter().all(|length| *length <= largest), "{:?}", stream.data);
    }
}
