//! Routes as a list, so that a test can visit every route.

use axum::Router;
use axum::routing::MethodRouter;

/// Paths, each with its methods.
pub type Routes<S> = Vec<(&'static str, MethodRouter<S>)>;

/// A router of these routes.
pub fn routed<S: Clone + Send + Sync + 'static>(routes: Routes<S>) -> Router<S> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
}
