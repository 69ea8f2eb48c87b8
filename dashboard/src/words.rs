//! Words that several pages share, and words that depend on a value. A word that occurs once is in its template.
//!
//! Sentences state the situation and the next step, in the words of the specification's procedure. The problems of a
//! domain have texts of their own, which the API shows as well.

mod pages;
mod sentences;
mod states;

pub(super) use pages::*;
pub(super) use sentences::*;
pub(super) use states::*;
