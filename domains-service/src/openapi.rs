//! The interface description (OpenAPI 3.1), made from the same constants the handlers use.
//!
//! It describes the public API as a client of the gateway meets it, so the gateway's own answers (401, 429, 5xx) and
//! headers are in it. Operators have the same calls below `/internal`, with their own token.

mod domains;
mod parts;
mod projects;
mod schemas;
mod webhooks;

use chassis::openapi::{self, About};
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
    let about = About {
        title: "Tollhouse Projects and Domains",
        version: VERSION,
        description: "Projects, API keys, custom domains with their certificates, and webhooks.",
        base: BASE,
        host: "Below the host `api.` of the platform.",
    };
    let tags = json!([
        { "name": "projects", "description": "Projects and what happened in them." },
        { "name": "keys", "description": "API keys." },
        { "name": "domains", "description": "Custom domains and their certificates." },
        { "name": "webhooks", "description": "Being told what happens to domains." },
    ]);
    let operations = operations().map(|operation| (operation.path, operation.method, operation.describe()));
    openapi::document(about, &tags, operations, &parts::components())
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
            let content = answer.schema.map(|schema| openapi::content(&openapi::schema(schema)));
            let response = openapi::response(answer.description, content.as_ref(), answer.headers);
            responses.insert(answer.status.to_string(), response);
        }
        for (status, _) in parts::ANY_ERRORS {
            responses.insert(status.to_string(), parts::shared_error(*status));
        }
        responses.insert("default".to_owned(), parts::shared_error(0));
        let own: Vec<(u16, &str)> = self.errors.iter().map(|code| (code.status(), code.as_str())).collect();
        for (status, codes) in openapi::by_status(parts::ANY_ERRORS.iter().copied().chain(own.iter().copied())) {
            if own.iter().any(|(of, _)| *of == status) {
                responses.insert(status.to_string(), parts::error_response(status, &codes));
            }
        }
        let scope = self.scope.map(|scope| format!(" Needs the scope `{scope}`.")).unwrap_or_default();
        let operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": format!("{}{scope}", self.description),
            "responses": responses,
        });
        let mut parameters = parts::path_parameters(self.path);
        parameters.extend(self.parameters.iter().cloned());
        let body = self.body.map(|schema| {
            let required = self.method == "patch" || self.id.starts_with("create") || self.id.starts_with("add");
            json!({ "required": required, "content": openapi::content(&openapi::schema(schema)) })
        });
        openapi::operation(operation, parameters, body)
    }
}

#[cfg(test)]
mod tests;
