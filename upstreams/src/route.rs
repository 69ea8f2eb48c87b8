//! The paths and methods of an upstream, checked before it is contacted.
//!
//! A pattern is compared with the path exactly as it will be forwarded, segment by segment, without decoding: nothing
//! is routed as one thing and forwarded as another.

use http::Method;

/// The body that a request announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncedBody {
    /// No body.
    None,
    /// This many bytes.
    Length(u64),
    /// A body of unknown length (chunked, or HTTP/2 without a length).
    Unknown,
}

/// One path pattern with its methods. `{…}` matches one non-empty segment, a trailing `*` everything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// For example `/v1/store/orders/{orderId}`.
    pub pattern: String,
    /// Methods; GET brings HEAD.
    pub methods: Vec<Method>,
    /// The largest body in bytes of methods other than GET, HEAD and DELETE (those take none).
    pub body_bytes_max: u64,
    /// Whether it needs no key: for descriptions of an API, such as `/openapi.json`.
    pub open: bool,
}

/// Why a request matches no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// No pattern matches.
    NotFound,
    /// A pattern matches, the method does not; the text is for `Allow`.
    Method(String),
    /// The method takes no body, and the request has one.
    BodyNotAllowed,
    /// The body is larger than the route allows.
    BodyTooLarge,
}

/// The routes of one upstream, in order.
#[derive(Debug)]
pub struct RouteTable(Vec<Route>);

impl RouteTable {
    pub(super) fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The largest body the request may send.
    pub fn pick(
        &self,
        method: &Method,
        path: &str,
        body: AnnouncedBody,
        body_bytes_max: u64,
    ) -> Result<u64, RouteError> {
        // Never forwarded: TRACE mirrors headers, CONNECT opens tunnels.
        if matches!(*method, Method::TRACE | Method::CONNECT) {
            return Err(self.methods(path).map_or(RouteError::NotFound, RouteError::Method));
        }
        let limit = if self.0.is_empty() { body_bytes_max } else { self.limit(method, path)? };
        match body {
            AnnouncedBody::Length(_) | AnnouncedBody::Unknown if limit == 0 => Err(RouteError::BodyNotAllowed),
            AnnouncedBody::Length(length) if length > limit => Err(RouteError::BodyTooLarge),
            AnnouncedBody::None | AnnouncedBody::Length(_) | AnnouncedBody::Unknown => Ok(limit),
        }
    }

    /// Whether a request for this needs no key.
    pub fn is_open(&self, method: &Method, path: &str) -> bool {
        let fits = |route: &&Route| matches(&route.pattern, path);
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.iter().filter(fits).any(|route| route.open && route.methods.contains(wanted))
    }

    /// A browser's preflight on a path: it has no body.
    pub fn pick_preflight(&self, path: &str, body: AnnouncedBody) -> Result<u64, RouteError> {
        match (self.methods(path), body) {
            (None, _) => Err(RouteError::NotFound),
            (Some(_), AnnouncedBody::None) => Ok(0),
            (Some(_), AnnouncedBody::Length(_) | AnnouncedBody::Unknown) => Err(RouteError::BodyNotAllowed),
        }
    }

    /// The methods of a path, for `Allow`; `None` if the path does not exist; all methods if there are no routes.
    pub fn methods(&self, path: &str) -> Option<String> {
        if self.0.is_empty() {
            return Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".to_owned());
        }
        let mut names: Vec<&str> = Vec::new();
        for route in self.0.iter().filter(|route| matches(&route.pattern, path)) {
            for method in &route.methods {
                let head = (*method == Method::GET).then_some("HEAD");
                for name in [Some(method.as_str()), head].into_iter().flatten() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        if names.is_empty() {
            return None;
        }
        names.push("OPTIONS");
        Some(names.join(", "))
    }

    fn limit(&self, method: &Method, path: &str) -> Result<u64, RouteError> {
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        let found = self.0.iter().find(|route| route.methods.contains(wanted) && matches(&route.pattern, path));
        match found {
            Some(_) if matches!(*wanted, Method::GET | Method::DELETE) => Ok(0),
            Some(route) => Ok(route.body_bytes_max),
            None => Err(self.methods(path).map_or(RouteError::NotFound, RouteError::Method)),
        }
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    if let Some(prefix) = pattern.strip_suffix('*') {
        return path.starts_with(prefix);
    }
    let mut wanted = pattern.split('/');
    let mut found = path.split('/');
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) => {
                let fits = if wanted.starts_with('{') { !found.is_empty() } else { wanted == found };
                if !fits {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RouteTable {
        RouteTable::new(vec![
            Route {
                pattern: "/v1/store/orders".to_owned(),
                methods: vec![Method::GET],
                body_bytes_max: 0,
                open: false,
            },
            Route {
                pattern: "/v1/store/orders/{orderId}".to_owned(),
                methods: vec![Method::DELETE],
                body_bytes_max: 0,
                open: false,
            },
            Route {
                pattern: "/v2/orders".to_owned(),
                methods: vec![Method::GET, Method::POST],
                body_bytes_max: 100,
                open: false,
            },
        ])
    }

    fn pick(method: &Method, path: &str, body: AnnouncedBody) -> Result<u64, RouteError> {
        table().pick(method, path, body, 7)
    }

    #[test]
    fn paths_match_as_they_will_be_forwarded() {
        assert_eq!(pick(&Method::GET, "/v1/store/orders", AnnouncedBody::None), Ok(0));
        assert_eq!(pick(&Method::HEAD, "/v1/store/orders", AnnouncedBody::None), Ok(0));
        assert_eq!(pick(&Method::DELETE, "/v1/store/orders/1", AnnouncedBody::None), Ok(0));
        assert_eq!(pick(&Method::DELETE, "/v1/store/orders/%2F", AnnouncedBody::None), Ok(0), "the service checks ids");
        for path in [
            "/",
            "/v1",
            "/v1/store/orders/",
            "//v1/store/orders",
            "/v1/store//orders",
            "/V1/store/orders",
            "/v1/store/orders/1/2",
        ] {
            assert_eq!(pick(&Method::GET, path, AnnouncedBody::None), Err(RouteError::NotFound), "{path}");
        }
    }

    #[test]
    fn an_open_route_is_one_path_with_its_methods() {
        let route = |pattern: &str, method: Method, open| Route {
            pattern: pattern.to_owned(),
            methods: vec![method],
            body_bytes_max: 0,
            open,
        };
        let table = RouteTable::new(vec![
            route("/reference", Method::GET, true),
            route("/reference", Method::POST, false),
            route("/orders", Method::GET, false),
        ]);
        for (method, path, is_open) in [
            (Method::GET, "/reference", true),
            (Method::HEAD, "/reference", true),
            (Method::POST, "/reference", false),
            (Method::DELETE, "/reference", false),
            (Method::GET, "/orders", false),
            (Method::GET, "/nowhere", false),
        ] {
            assert_eq!(table.is_open(&method, path), is_open, "{method} {path}");
        }
        assert!(!RouteTable::new(Vec::new()).is_open(&Method::GET, "/"));
    }

    // rule: 4.1.1, 4.2.1
    #[test]
    fn a_wrong_method_is_refused_with_the_allowed_ones() {
        let allow = |method: &Method, path| pick(method, path, AnnouncedBody::None).unwrap_err();
        assert_eq!(allow(&Method::POST, "/v1/store/orders"), RouteError::Method("GET, HEAD, OPTIONS".to_owned()));
        assert_eq!(allow(&Method::GET, "/v1/store/orders/1"), RouteError::Method("DELETE, OPTIONS".to_owned()));
        assert_eq!(allow(&Method::TRACE, "/v2/orders"), RouteError::Method("GET, HEAD, POST, OPTIONS".to_owned()));
    }

    // rule: 4.1.3, 4.2.3
    #[test]
    fn bodies_are_checked_before_the_upstream_is_contacted() {
        assert_eq!(
            pick(&Method::DELETE, "/v1/store/orders/1", AnnouncedBody::Length(1)),
            Err(RouteError::BodyNotAllowed)
        );
        assert_eq!(pick(&Method::GET, "/v2/orders", AnnouncedBody::Unknown), Err(RouteError::BodyNotAllowed));
        assert_eq!(pick(&Method::POST, "/v2/orders", AnnouncedBody::Length(101)), Err(RouteError::BodyTooLarge));
        assert_eq!(pick(&Method::POST, "/v2/orders", AnnouncedBody::Unknown), Ok(100));
    }

    #[test]
    fn an_upstream_without_routes_accepts_every_path_and_method() {
        let open = RouteTable::new(Vec::new());
        assert_eq!(open.pick(&Method::PUT, "/anything", AnnouncedBody::Length(7), 7), Ok(7));
        assert_eq!(open.pick(&Method::PUT, "/anything", AnnouncedBody::Length(8), 7), Err(RouteError::BodyTooLarge));
        assert!(matches!(open.pick(&Method::TRACE, "/", AnnouncedBody::None, 7), Err(RouteError::Method(_))));
    }
}
