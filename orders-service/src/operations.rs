//! The operations of this service: their names, methods and paths, in one table.
//!
//! The routers are written by hand beside their handlers; a test walks this table and finds every entry served.

/// The deprecated one, which is counted by name.
pub(crate) const GET_PET: &str = "getPet";

/// Requests that match no operation.
const OTHER: &str = "other";

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// `operationId` of the interface description; the label in metrics.
    pub(crate) id: &'static str,
    /// Upper case.
    pub(crate) method: &'static str,
    /// With parameters in braces.
    pub(crate) path: &'static str,
}

const fn operation(id: &'static str, method: &'static str, path: &'static str) -> Operation {
    Operation { id, method, path }
}

/// Every operation, of the API and of the operators' listener.
pub(crate) const ALL: &[Operation] = &[
    operation("listOrders", "GET", "/v1/store/orders"),
    operation("cancelOrder", "DELETE", "/v1/store/orders/{orderId}"),
    operation(GET_PET, "GET", "/v1/pets/{petId}"),
    operation("listOrdersV2", "GET", "/v2/store/orders"),
    operation("createOrder", "POST", "/v2/store/orders"),
    operation("getOrder", "GET", "/v2/store/orders/{orderId}"),
    operation("cancelOrderV2", "DELETE", "/v2/store/orders/{orderId}"),
    operation("shipOrderV2", "POST", "/v2/store/orders/{orderId}/ship"),
    operation("getOrderHistory", "GET", "/v2/store/orders/{orderId}/history"),
    operation("importOrders", "POST", "/internal/orders/{project}/import"),
    operation("exportOrders", "GET", "/internal/orders/{project}/export"),
    operation("summariseOrders", "GET", "/internal/orders/{project}/summary"),
    operation("shipOrder", "POST", "/internal/orders/{project}/{id}/ship"),
];

/// The label of a request, by its method and the path pattern it matched.
pub(crate) fn label(method: &str, pattern: Option<&str>) -> &'static str {
    // A HEAD is a GET whose body stays here.
    let method = if method == "HEAD" { "GET" } else { method };
    let found = ALL.iter().find(|operation| operation.method == method && Some(operation.path) == pattern);
    found.map_or(OTHER, |operation| operation.id)
}

/// Every label there is.
pub(crate) fn labels() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|operation| operation.id).chain([OTHER])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_head_counts_as_get() {
        let mut names: Vec<_> = labels().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len() + 1);
        assert_eq!(label("HEAD", Some("/v1/store/orders")), "listOrders");
        assert_eq!(label("POST", Some("/v1/store/orders")), OTHER);
        assert_eq!(label("GET", None), OTHER);
    }
}
