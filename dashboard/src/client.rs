//! The API, called in the same process on behalf of the session's holder.

use domains_api::Operation;
use domains_api::actor::Actor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Dashboard;
use super::control_plane::{Answered, Refused};

impl Answered {
    /// Parses the body into the type that a page shows.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Refused> {
        serde_json::from_value(self.body).map_err(|error| {
            tracing::error!(
                %error,
                "the API's response is not what the dashboard expects; answered 500. This is a defect: report it"
            );
            Refused::internal()
        })
    }
}

impl Dashboard {
    /// Calls an operation with the parameters of its path, in order. `Value::Null`: no body.
    pub(super) async fn call(
        &self,
        actor: &Actor,
        operation: Operation,
        place: (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused> {
        self.control_plane.call(actor, operation, place, body).await
    }

    /// Calls an operation that only reads.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        actor: &Actor,
        operation: Operation,
        named: &[&str],
        query: &str,
    ) -> Result<T, Refused> {
        self.call(actor, operation, (named, query), &Value::Null).await?.read()
    }
}
