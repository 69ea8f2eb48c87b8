//! Bounds and words of `/v2`, for the API and its description.

use crate::store::Sort;

/// Most units in an order.
pub(crate) const QUANTITY_MAX: i64 = 1_000_000;

/// Lifetime of an idempotency key in hours.
pub(crate) const IDEMPOTENCY_HOURS: i64 = 24;

/// Default number of orders in a page.
pub(crate) const LIMIT_DEFAULT: u32 = 100;

/// Most orders in a page.
pub(crate) const LIMIT_MAX: u32 = 1_000;

/// The word for a sort.
pub(crate) const SORTS: [(&str, Sort); 4] = [
    ("id", Sort::Id),
    ("-id", Sort::IdDescending),
    ("shipDate", Sort::ShipDate),
    ("-shipDate", Sort::ShipDateDescending),
];

/// A letter for the sort and 16 bytes in unpadded base64url. The last character encodes two bits, so it is one of four.
pub(crate) const CURSOR_PATTERN: &str = "^[iIsS][A-Za-z0-9_-]{21}[AQgw]$";
