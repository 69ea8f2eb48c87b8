//! The end of a body.

use super::{matrix, refused_by_listener};

// promise: edge.1
#[tokio::test]
async fn a_body_with_two_possible_ends_is_refused() {
    refused_by_listener(matrix::lengths_and_codings()).await;
}

// promise: edge.1
#[tokio::test]
async fn a_transfer_coding_in_disguise_is_refused() {
    refused_by_listener(matrix::obscured_codings()).await;
}

// promise: edge.2
#[tokio::test]
async fn lines_that_end_or_hide_something_are_refused() {
    refused_by_listener(matrix::line_ends_and_controls()).await;
}
