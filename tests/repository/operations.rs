//! An operation that the dashboard or the command line calls is there to be used: a form has its route, a route its
//! form, and what pages change a command changes as well.

use std::collections::BTreeSet;

use domains_service::Operation;

use crate::tree;

/// The files below a folder with this ending, joined.
fn joined(folder: &str, ending: &str) -> String {
    let files = tree::files(ending).into_iter().filter(|path| path.starts_with(folder));
    files.map(|path| tree::read(&path)).collect()
}

/// A path with empty braces in place of its parameters.
fn without_names(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

/// The paths of routes that a browser posts to, with whether the path is also that of a page, whose form may have no
/// action.
fn routes() -> BTreeSet<(String, bool)> {
    let files = tree::files(".rs").into_iter().filter(|path| path.starts_with("dashboard/src/"));
    let mut all = BTreeSet::new();
    for file in files {
        let text = tree::read(&file);
        // All routes but those of lib.rs are below a project.
        let base = if file.ends_with("lib.rs") { "" } else { "/projects/{project}" };
        for route in text.split(".route(\"").skip(1) {
            let (path, handlers) = route.split_once("\", ").unwrap();
            let handlers = handlers.lines().next().unwrap();
            if handlers.contains("post(") {
                all.insert((without_names(&format!("{base}{path}")), handlers.starts_with("get(")));
            }
        }
    }
    all
}

#[test]
fn every_form_of_the_dashboard_has_its_route_and_every_route_its_form() {
    let templates = joined("dashboard/templates/", ".html");
    let actions = templates.split("action=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let forms: BTreeSet<String> = actions.map(without_names).collect();
    let routes = routes();
    assert!(routes.len() > 10, "{routes:?}");
    for form in &forms {
        assert!(routes.iter().any(|(path, _)| path == form), "{form} has no route");
    }
    for (path, _) in routes.iter().filter(|(_, is_page)| !is_page) {
        assert!(forms.contains(path), "no form posts to {path}");
    }
}

/// The two forms that open a session have no token yet.
#[test]
fn every_form_of_a_session_has_its_token() {
    let templates = joined("dashboard/templates/", ".html");
    let forms = templates.split("<form method=\"post\"").skip(1).map(|rest| rest.split("</form>").next().unwrap());
    let without: BTreeSet<_> = forms.filter(|form| !form.contains("csrf")).map(str::trim_start).collect();
    assert_eq!(without.len(), 2, "{without:#?}");
    assert!(
        without.iter().all(|form| form.starts_with("action=\"/enter\"") || form.starts_with("action=\"/sign-in\""))
    );
}

#[test]
fn every_operation_that_changes_something_has_its_command() {
    let commands = joined("tollhouse/src/", ".rs");
    let callers = format!("{commands}{}", joined("dashboard/src/", ".rs"));
    for operation in Operation::ALL {
        let name = format!("Operation::{operation:?}");
        let (method, _) = domains_service::at_operators(*operation, &[]).unwrap();
        let needed = if method.as_str() == "GET" { &callers } else { &commands };
        assert!(needed.contains(&name), "nothing calls {name}");
    }
}

#[test]
fn every_operation_that_keys_have_is_called_and_its_changes_have_a_page() {
    let pages = joined("dashboard/src/", ".rs");
    let at = |operation: &Operation| domains_service::at_operators(*operation, &[]).unwrap();
    // For programs alone: the description, and what CAA records may say.
    let alone = ["/openapi.json", "/v1/openapi.json", "/reference", "/v1/acme-account"];
    for (method, path, _) in domains_service::operations().filter(|(_, path, _)| !alone.contains(path)) {
        let place = path.replacen("/v1/", "/internal/", 1);
        let named = Operation::ALL.iter().find(|one| at(one).0.as_str() == method && at(one).1 == place);
        let named = named.unwrap_or_else(|| panic!("{method} {path} has no word in domains-api/src/operation.rs"));
        let name = format!("Operation::{named:?}");
        assert!(method == "GET" || pages.contains(&name), "no page calls {name}");
    }
}
