//! The interface description (OpenAPI 3.1), made from the same constants the handlers use.
//!
//! It describes the public API as a client of the gateway meets it, so the gateway's own answers (401, 429, 5xx) and
//! headers are in it. Operators have the same calls below `/internal`, with their own token.

mod domains;
mod parts;
mod projects;
mod schemas;
mod webhooks;

use contract::key::Scope;
use serde_json::{Map, Value, json};

use crate::error::Code;

/// The version of the described interface.
pub(crate) const VERSION: &str = "1.0.0";

/// Where the API begins.
pub(crate) const BASE: &str = "/v1";

/// The name of the committed copy.
pub(crate) const FILE: &str = "domains-v1.json";

/// One operation as its module states it.
struct Operation {
    id: &'static str,
    method: &'static str,
    /// Below [`BASE`].
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
    description: &'static str,
    /// What the key must be allowed to do.
    scope: Option<Scope>,
    /// Query and header parameters; those of the path follow from it.
    parameters: Vec<Value>,
    /// The schema of the request's body.
    body: Option<&'static str>,
    answers: Vec<Answer>,
    /// Refusals of this operation's own; those that any operation may have are added to all.
    errors: &'static [Code],
}

/// An answer that is no refusal.
struct Answer {
    status: u16,
    description: &'static str,
    schema: Option<&'static str>,
    headers: &'static [&'static str],
}

/// An answer with a body.
const fn answer(status: u16, description: &'static str, schema: &'static str) -> Answer {
    Answer { status, description, schema: Some(schema), headers: &[] }
}

/// An answer without a body.
const fn empty(status: u16, description: &'static str) -> Answer {
    Answer { status, description, schema: None, headers: &[] }
}

impl Answer {
    const fn with(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }
}

/// The description.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.to_owned(), operation.describe());
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollhouse Projects and Domains",
            "version": VERSION,
            "description": "Projects, API keys, custom domains with their certificates, and webhooks.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": BASE, "description": "Below the host `api.` of the platform." }],
        "tags": [
            { "name": "projects", "description": "Projects and what happened in them." },
            { "name": "keys", "description": "API keys." },
            { "name": "domains", "description": "Custom domains and their certificates." },
            { "name": "webhooks", "description": "Being told what happens to domains." },
        ],
        "security": [{ "bearerAuth": [] }],
        "paths": paths,
        "components": parts::components(),
    })
}

/// The description as it is served and committed.
pub(crate) fn printed() -> String {
    format!("{:#}\n", document())
}

fn operations() -> impl Iterator<Item = Operation> {
    projects::operations().into_iter().chain(domains::operations()).chain(webhooks::operations())
}

impl Operation {
    fn describe(&self) -> Value {
        let mut responses = Map::new();
        for answer in &self.answers {
            responses.insert(answer.status.to_string(), parts::response(answer));
        }
        for (status, _) in parts::ANY_ERRORS {
            responses.insert(status.to_string(), parts::shared_error(*status));
        }
        responses.insert("default".to_owned(), parts::shared_error(0));
        let own: Vec<(u16, &str)> = self.errors.iter().map(|code| (code.status(), code.as_str())).collect();
        for (status, codes) in parts::by_status(parts::ANY_ERRORS.iter().copied().chain(own.iter().copied())) {
            if own.iter().any(|(of, _)| *of == status) {
                responses.insert(status.to_string(), parts::error_response(status, &codes));
            }
        }
        let scope = self.scope.map(|scope| format!(" Needs the scope `{scope}`.")).unwrap_or_default();
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": format!("{}{scope}", self.description),
            "responses": responses,
        });
        if let Some(operation) = operation.as_object_mut() {
            let mut parameters = parts::path_parameters(self.path);
            parameters.extend(self.parameters.iter().cloned());
            if !parameters.is_empty() {
                operation.insert("parameters".to_owned(), parameters.into());
            }
            if let Some(schema) = self.body {
                let required = self.method == "patch" || self.id.starts_with("create") || self.id.starts_with("add");
                let content = json!({ "application/json": { "schema": parts::reference(schema) } });
                operation.insert("requestBody".to_owned(), json!({ "required": required, "content": content }));
            }
        }
        operation
    }
}

#[cfg(test)]
mod tests;
