//! Operations of an API, and the OpenAPI 3.1 documents generated from them.
//!
//! A service lists its operations once. Its router, its metrics, the document and the clients in this repository come
//! from that list: an operation outside of it is not served, and every operation in it is described.

mod document;

use axum::routing::{MethodFilter, MethodRouter};
use axum::{Extension, Router};
use contract::key::Scope;
use contract::schema::SchemaOf;
use serde_json::Value;

pub use self::document::{Interface, document, error_body, error_body_with_details, printed};
use crate::percent::segment;

contract::words! {
    /// The methods of operations.
    pub enum Method {
        /// Read.
        Get = "GET",
        /// Create, or run an action.
        Post = "POST",
        /// Change.
        Patch = "PATCH",
        /// Remove.
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
    /// The method; GET includes HEAD.
    pub method: Method,
    /// The whole path, with parameters in braces.
    pub path: &'static str,
    /// Builds the handler for the method.
    pub handler: fn(MethodFilter) -> MethodRouter<S>,
    /// The tag in documents; an operation with an empty tag is in no document.
    pub tag: &'static str,
    /// A short title.
    pub summary: &'static str,
    /// A description of one or two sentences.
    pub description: &'static str,
    /// The scope that the key needs; `None`: any key.
    pub scope: Option<Scope>,
    /// Parameters in the query and in headers. Those in the path come from `path`.
    pub parameters: &'static [Parameter],
    /// The schema of the body, and whether a request may omit it.
    pub body: Option<(SchemaOf, Presence)>,
    /// Successful responses.
    pub answers: &'static [Success],
    /// Refusals of this operation; documents add those of all operations.
    pub errors: &'static [C],
    /// Extensions of the description, such as `x-stability`, by name.
    pub extensions: &'static [(&'static str, ExtensionValue)],
}

/// The value of an extension.
#[derive(Clone, Copy, Debug)]
pub enum ExtensionValue {
    /// A boolean.
    Is(bool),
    /// A string.
    Word(&'static str),
}

/// Whether a request must have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must have one.
    Required,
    /// Without a body, every field has its default.
    Optional,
}

/// A parameter of an operation.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `path`, `query` or `header`.
    pub location: &'static str,
    /// Whether it is required.
    pub required: bool,
    /// Its description.
    pub description: &'static str,
    /// Its schema.
    pub schema: fn() -> Value,
}

impl Parameter {
    /// An optional query parameter.
    pub const fn query(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, location: "query", required: false, description, schema }
    }

    /// A path parameter.
    pub const fn path(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, location: "path", required: true, description, schema }
    }
}

/// A successful response.
#[derive(Debug)]
pub struct Success {
    status: u16,
    description: &'static str,
    schema: Option<SchemaOf>,
    headers: &'static [&'static str],
}

impl Success {
    /// A response with a body.
    pub const fn new(status: u16, description: &'static str, schema: SchemaOf) -> Self {
        Self { status, description, schema: Some(schema), headers: &[] }
    }

    /// A response without a body.
    pub const fn empty(status: u16, description: &'static str) -> Self {
        Self { status, description, schema: None, headers: &[] }
    }

    /// Adds headers of this response.
    #[must_use]
    pub const fn with(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }
}

impl<S: 'static, C: 'static> Operation<S, C> {
    /// An operation that documents omit; also the base of all other operations.
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
            extensions: &[],
        }
    }

    /// Whether it has an extension with this name.
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|(extension, _)| *extension == name)
    }

    /// Its path with the parameters replaced, in order, by these values, percent-encoded.
    pub fn path_of(&self, values: &[&str]) -> String {
        let mut values = values.iter();
        let parts = self.path.split('/').map(|part| match part.strip_prefix('{') {
            Some(_) => values.next().map_or_else(|| part.to_owned(), |value| segment(value)),
            None => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// The scope of the operation that a request calls, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct NeededScope(pub Option<Scope>);

/// A router of these operations; `place` maps each operation's path to the path in the router.
pub fn routed<'o, S, C: 'static>(
    operations: impl IntoIterator<Item = &'o Operation<S, C>>,
    place: impl Fn(&'static str) -> String,
) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    operations.into_iter().fold(Router::new(), |router, operation| {
        let handler = (operation.handler)(operation.method.filter());
        router.route(&place(operation.path), handler.route_layer(Extension(NeededScope(operation.scope))))
    })
}

/// The metrics label of an operation, by the request's method and the matched path pattern.
pub fn label<'o, S: 'static, C: 'static>(
    operations: impl IntoIterator<Item = &'o Operation<S, C>>,
    method: &str,
    pattern: &str,
) -> Option<&'static str> {
    // A HEAD is a GET without the response body.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut fitting = operations.into_iter().filter(|operation| operation.path == pattern);
    fitting.find(|operation| operation.method.as_str() == method).map(|operation| operation.id)
}
