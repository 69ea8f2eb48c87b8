//! The page that a site shows people in place of the gateway's own.

use std::sync::Arc;

/// The largest page.
const ERROR_PAGE_BYTES_MAX: usize = 64 * 1024;

/// A page with the placeholders `{status}`, `{code}`, `{message}` and `{request_id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage(Arc<str>);

/// Why a file is not a valid page.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum InvalidErrorPage {
    /// It is too large.
    #[error("make it smaller: at most 65536 bytes")]
    TooLarge,
    /// It is not UTF-8.
    #[error("write it in UTF-8")]
    NoText,
}

impl TryFrom<Vec<u8>> for ErrorPage {
    type Error = InvalidErrorPage;

    fn try_from(bytes: Vec<u8>) -> Result<Self, InvalidErrorPage> {
        if bytes.len() > ERROR_PAGE_BYTES_MAX {
            return Err(InvalidErrorPage::TooLarge);
        }
        String::from_utf8(bytes).map(|text| Self(text.into())).map_err(|_| InvalidErrorPage::NoText)
    }
}

impl ErrorPage {
    /// The page as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_size_and_is_text() {
        assert!(ErrorPage::try_from(vec![b'x'; ERROR_PAGE_BYTES_MAX]).is_ok());
        assert!(matches!(ErrorPage::try_from(vec![b'x'; ERROR_PAGE_BYTES_MAX + 1]), Err(InvalidErrorPage::TooLarge)));
        assert!(matches!(ErrorPage::try_from(vec![0xff]), Err(InvalidErrorPage::NoText)));
    }
}
