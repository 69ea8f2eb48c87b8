//! Deliveries of a webhook: their results, and sending one again.

use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::{Method, Parameter, Success};
use contract::schema;
use contract::time::UnixMillis;
use http::StatusCode;
use serde_json::json;

use super::super::Operation;
use super::super::extract::{Authorised, LIMIT, NUMBER_CURSOR, Params};
use super::super::types::{self, Deliveries, Rfc3339};
use super::super::view::page;
use super::{reading, writing};
use crate::error::{ApiError, ApiResult, Code};
use crate::store::webhooks::{self, Delivery, DeliveryState};

/// Operations on deliveries.
pub(crate) const OPERATIONS: &[Operation] = &[TEST, LIST, REPEAT];

const LIST: Operation = Operation {
    summary: "List deliveries",
    description: "Sent messages and their results.",
    parameters: &[
        Parameter::query(
            "state",
            "Deliveries in this state.",
            || json!({ "type": "string", "enum": DeliveryState::WORDS }),
        ),
        NUMBER_CURSOR,
        LIMIT,
    ],
    answers: &[Success::new(200, "A page of deliveries, newest first.", schema::of::<Deliveries>)],
    errors: &[Code::InvalidQuery, Code::WebhookNotFound],
    ..reading("listWebhookDeliveries", "/v1/projects/{project}/webhooks/{webhook}/deliveries", |get| on(get, list))
};

const REPEAT: Operation = Operation {
    summary: "Repeat a delivery",
    description: "Sends the message again, under the same id.",
    answers: &[Success::new(202, "It has the full number of attempts again.", schema::of::<types::Delivery>)],
    errors: &[Code::WebhookNotFound, Code::DeliveryNotFound, Code::WebhookDisabled],
    ..writing(
        "repeatWebhookDelivery",
        Method::Post,
        "/v1/projects/{project}/webhooks/{webhook}/deliveries/{delivery}/repeat",
        |post| on(post, repeat),
    )
};

const TEST: Operation = Operation {
    summary: "Send a test message",
    description: "A message of the type `webhook.test`, signed and sent like every other, whatever events the webhook receives.",
    answers: &[Success::new(202, "The message is on its way.", schema::of::<types::Delivery>)],
    errors: &[Code::WebhookNotFound, Code::WebhookDisabled],
    ..writing("testWebhook", Method::Post, "/v1/projects/{project}/webhooks/{webhook}/test", |post| on(post, test))
};

/// `GET …/webhooks/{webhook}/deliveries`, newest first.
async fn list(
    Authorised { part: core, actor, project, rest: [webhook], .. }: Authorised<1>,
    params: Params,
) -> ApiResult {
    let endpoint = super::load(&core, &actor, &project, &webhook).await?;
    let limit = params.limit()?;
    let before = params.number_cursor()?;
    let state = params.text("state").map(str::parse::<DeliveryState>).transpose();
    let words = DeliveryState::WORDS.join(", ");
    let state = state.map_err(|_| Code::InvalidQuery.refuse(format!("state must be one of: {words}.")))?;
    let found = core.store.deliveries(&endpoint.id, state, before, limit).await?;
    let (list, next) = page(&found, limit, |delivery| delivery.id.to_string(), view);
    Ok(axum::Json(Deliveries { deliveries: list, next_cursor: next }).into_response())
}

/// `POST …/webhooks/{webhook}/deliveries/{delivery}/repeat`: starts its attempts again from the first.
async fn repeat(Authorised { part: core, actor, project, rest: [webhook, delivery], .. }: Authorised<2>) -> ApiResult {
    let not_found = || ApiError::from(Code::DeliveryNotFound.refuse("The webhook has no delivery of this id."));
    let mut write = core.store.write().await?;
    let endpoint = super::find(&mut write, &actor, &project, &webhook).await?;
    if endpoint.disabled.is_some() {
        return Err(disabled());
    }
    let id: i64 = delivery.parse().map_err(|_| not_found())?;
    let delivery = webhooks::repeat(&mut write, &endpoint.id, id).await?.ok_or_else(not_found)?;
    let detail = json!({ "webhook": endpoint.id, "delivery": delivery.id });
    write.record(&project, None, "webhook.delivery_repeated", &actor, detail).await?;
    write.commit().await?;
    Ok((StatusCode::ACCEPTED, axum::Json(view(&delivery))).into_response())
}

/// `POST …/webhooks/{webhook}/test`: a message without content, signed and sent like every other.
async fn test(Authorised { part: core, actor, project, rest: [webhook], .. }: Authorised<1>) -> ApiResult {
    let mut write = core.store.write().await?;
    let endpoint = super::find(&mut write, &actor, &project, &webhook).await?;
    if endpoint.disabled.is_some() {
        return Err(disabled());
    }
    let id = format!("msg_test_{:032x}", u128::from_be_bytes(chassis::random::bytes()?));
    let sent = webhooks::send_test(&mut write, &project, &endpoint.id, &id).await?;
    write.record(&project, None, "webhook.tested", &actor, json!({ "webhook": endpoint.id })).await?;
    write.commit().await?;
    Ok((StatusCode::ACCEPTED, axum::Json(view(&sent.ok_or_else(disabled)?))).into_response())
}

fn disabled() -> ApiError {
    Code::WebhookDisabled.refuse(r#"The webhook is disabled. Send {"enabled": true} first."#).into()
}

fn view(delivery: &Delivery) -> types::Delivery {
    let moment = |at: i64| Rfc3339::from(UnixMillis(at));
    types::Delivery {
        id: delivery.id,
        message_id: delivery.message.clone(),
        kind: delivery.kind.clone(),
        state: delivery.state.clone(),
        attempts: delivery.attempts,
        next_attempt_at: delivery.due_at.map(moment),
        last_attempt_at: delivery.last_at.map(moment),
        last_result: delivery.last_result.clone(),
        last_status: delivery.last_status,
        last_error: delivery.last_error.clone(),
        created_at: moment(delivery.created_at),
        payload: serde_json::from_str(&delivery.body).unwrap_or_default(),
    }
}
