//! The bounds and words of `/v2` that the API keeps and its description states.

use crate::store::Sort;

/// Units in one order.
pub(crate) const QUANTITY_MAX: i64 = 1_000_000;

/// How long the outcome of a key is remembered.
pub(crate) const IDEMPOTENCY_HOURS: i64 = 24;

/// Orders of a page unless the client says how many.
pub(crate) const LIMIT_DEFAULT: u32 = 100;

/// Orders of a page at most.
pub(crate) const LIMIT_MAX: u32 = 1_000;

/// The word for a sort.
pub(crate) const SORTS: [(&str, Sort); 4] = [
    ("id", Sort::Id),
    ("-id", Sort::IdDescending),
    ("shipDate", Sort::ShipDate),
    ("-shipDate", Sort::ShipDateDescending),
];

/// The form of a cursor: a letter for the sort, then 16 bytes in unpadded base64url, whose last character has four bits to spare.
pub(crate) const CURSOR_PATTERN: &str = "^[iIsS][A-Za-z0-9_-]{21}[AQgw]$";
