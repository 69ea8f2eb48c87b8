//! A follower of the change stream.

use contract::feed::Frame;

/// The change stream, frame by frame.
pub(crate) struct Stream {
    pub(super) response: reqwest::Response,
    pub(super) buffer: Vec<u8>,
}

impl Stream {
    /// The next frame; `None` when the stream ended. The client's timeout is the test's: a stream that continues
    /// without the awaited frame has not ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => return None,
                Err(error) => {
                    assert!(!error.is_timeout(), "the stream goes on, and what the test waits for does not come");
                    return None;
                }
            }
        }
    }

    /// The next change, heartbeats passed over.
    pub(crate) async fn change(&mut self) -> contract::feed::Change {
        loop {
            match self.next().await.expect("the stream goes on") {
                Frame::Change(change) => return change,
                Frame::Heartbeat { .. } => {}
                other => panic!("no change: {other:?}"),
            }
        }
    }

    /// A whole snapshot and its revision.
    pub(crate) async fn snapshot(&mut self) -> (Vec<contract::feed::Entity>, u64) {
        let mut announced = None;
        let mut entities = Vec::new();
        loop {
            match self.next().await.expect("the stream goes on") {
                Frame::SnapshotBegin { entities } => announced = Some(entities),
                Frame::Entity(entity) => entities.push(entity),
                Frame::SnapshotEnd { revision, .. } => {
                    assert_eq!(announced, Some(entities.len() as u64));
                    return (entities, revision.0);
                }
                Frame::Heartbeat { .. } if announced.is_none() => {}
                other => panic!("not part of a snapshot: {other:?}"),
            }
        }
    }
}
