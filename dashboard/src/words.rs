//! Words that several pages share, and words that depend on a value. A word that occurs once stands in its template.
//!
//! Sentences say what is the case and what to do, in the words of the specification's procedure. What is wrong with a
//! domain is said by its problems, which the API shows as well.

mod pages;
mod sentences;
mod states;

pub(super) use pages::*;
pub(super) use sentences::*;
pub(super) use states::*;
