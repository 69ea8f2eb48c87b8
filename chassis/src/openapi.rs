//! Operations of an API, and the interface descriptions (OpenAPI 3.1) made from them.
//!
//! A service lists its operations once. Its router, its metrics, the document and the clients in this repository come
//! from that list: an operation that is not in it is not served, and one that is in it is described.

mod document;

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter};
use contract::key::Scope;
use contract::schema::SchemaOf;
use serde_json::Value;

pub use self::document::{Interface, document, error_body, error_body_with_details, printed};
use crate::percent::segment;

contract::words! {
    /// What a request wants done.
    pub enum Method {
        /// To read.
        Get = "GET",
        /// To create, or to carry something out.
        Post = "POST",
        /// To change.
        Patch = "PATCH",
        /// To remove.
        Delete = "DELETE",
    }
}

impl Method {
    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// One operation, served with the state `S`, with refusals from the catalogue `C`.
pub struct Operation<S: 'static, C: 'static> {
    /// `operationId` of the description, and the label in metrics.
    pub id: &'static str,
    /// The method; GET brings HEAD.
    pub method: Method,
    /// The whole path, with parameters in braces.
    pub path: &'static str,
    /// Turns the method into its handler.
    pub handler: fn(MethodFilter) -> MethodRouter<S>,
    /// Under which heading documents show it; empty: it is in no document.
    pub tag: &'static str,
    /// A few words.
    pub summary: &'static str,
    /// A sentence or two.
    pub description: &'static str,
    /// What the key must be allowed to do; `None`: any key will do.
    pub scope: Option<Scope>,
    /// Parameters in the query and in headers; those of the path follow from it.
    pub parameters: &'static [Parameter],
    /// The schema of the body, and whether it may be left out.
    pub body: Option<(SchemaOf, Presence)>,
    /// Answers that are no refusals.
    pub answers: &'static [Success],
    /// Refusals of its own; those that any operation may have are added to all.
    pub errors: &'static [C],
    /// Members of the description besides these, by name.
    pub marks: &'static [(&'static str, MarkValue)],
}

/// The value of a mark.
#[derive(Clone, Copy, Debug)]
pub enum MarkValue {
    /// Yes or no.
    Is(bool),
    /// A word.
    Word(&'static str),
}

/// Whether a request must have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must.
    Required,
    /// Without one everything has its default.
    Optional,
}

/// A parameter of an operation.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `path`, `query` or `header`.
    pub place: &'static str,
    /// Whether it must be given.
    pub required: bool,
    /// What it means.
    pub description: &'static str,
    /// Its schema.
    pub schema: fn() -> Value,
}

impl Parameter {
    /// One of the query that may be left out.
    pub const fn query(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, place: "query", required: false, description, schema }
    }

    /// One of the path.
    pub const fn path(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, place: "path", required: true, description, schema }
    }
}

/// An answer that is no refusal.
#[derive(Debug)]
pub struct Success {
    status: u16,
    description: &'static str,
    schema: Option<SchemaOf>,
    headers: &'static [&'static str],
}

impl Success {
    /// With a body.
    pub const fn new(status: u16, description: &'static str, schema: SchemaOf) -> Self {
        Self { status, description, schema: Some(schema), headers: &[] }
    }

    /// Without a body.
    pub const fn empty(status: u16, description: &'static str) -> Self {
        Self { status, description, schema: None, headers: &[] }
    }

    /// With headers of its own.
    #[must_use]
    pub const fn with(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }
}

impl<S: 'static, C: 'static> Operation<S, C> {
    /// One that documents leave out; the others differ from it.
    pub const fn internal(
        id: &'static str,
        method: Method,
        path: &'static str,
        handler: fn(MethodFilter) -> MethodRouter<S>,
    ) -> Self {
        Self {
            id,
            method,
            path,
            handler,
            tag: "",
            summary: "",
            description: "",
            scope: None,
            parameters: &[],
            body: None,
            answers: &[],
            errors: &[],
            marks: &[],
        }
    }

    /// Whether it has a mark of this name.
    pub fn is_marked(&self, name: &str) -> bool {
        self.marks.iter().any(|(mark, _)| *mark == name)
    }

    /// Its path with these values, percent-encoded, in place of the parameters in order.
    pub fn path_of(&self, values: &[&str]) -> String {
        fill(self.path, values)
    }
}

/// A path with these values, percent-encoded, in place of the parameters in order.
pub fn fill(path: &str, values: &[&str]) -> String {
    let mut values = values.iter();
    let parts = path.split('/').map(|part| match part.strip_prefix('{') {
        Some(_) => values.next().map_or_else(|| part.to_owned(), |value| segment(value)),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// A router of these operations, each at the path that `place` makes of its own.
pub fn routed<'o, S, C: 'static>(
    operations: impl IntoIterator<Item = &'o Operation<S, C>>,
    place: impl Fn(&'static str) -> String,
) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    operations.into_iter().fold(Router::new(), |router, operation| {
        router.route(&place(operation.path), (operation.handler)(operation.method.filter()))
    })
}

/// The name, in metrics, of the operation that a request is for: by its method and the pattern that its path matched.
pub fn label<'o, S: 'static, C: 'static>(
    operations: impl IntoIterator<Item = &'o Operation<S, C>>,
    method: &str,
    pattern: &str,
) -> Option<&'static str> {
    // A HEAD is a GET whose body stays here.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut fitting = operations.into_iter().filter(|operation| operation.path == pattern);
    fitting.find(|operation| operation.method.as_str() == method).map(|operation| operation.id)
}
