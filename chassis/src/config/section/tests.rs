//! Mistakes, each with its place and a fix.

use std::collections::BTreeMap;

use super::super::Source;
use super::*;

fn source(text: &str) -> Source {
    let environment = BTreeMap::from([("APP_QUOTA_BUDGET".to_owned(), "75ms".to_owned())]);
    Source::from_text("gateway.toml", text, "APP", environment)
}

#[test]
fn all_mistakes_are_reported_together_with_line_value_and_fix() {
    let source = source("[quota]\nmode = \"alow\"\nlimit = 0\nlimt = 3\n[tls]\nhandshake = \"0s\"\n");
    let reader = source.reader().unwrap();
    let quota = reader.root().section("quota");
    let mode = quota.value::<contract::plan::Plan>("mode", contract::plan::Plan::Free);
    let limit = quota.integer("limit", 5, 1..=10);
    let budget = quota.duration("budget", Duration::from_millis(50), Duration::from_millis(1)..=Duration::from_secs(1));
    let tls = reader.root().section("tls");
    let shake = tls.duration("handshake", Duration::from_secs(5), Duration::from_secs(1)..=Duration::from_mins(1));
    assert_eq!(budget, Some(Duration::from_millis(75)), "the environment wins");
    let problems = reader.finish(mode.zip(limit).zip(shake)).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "gateway.toml has 4 problems\n\
         \x20 line 2    quota.mode = \"alow\"\n             use one of: free, pro, business, enterprise\n\
         \x20 line 3    quota.limit = 0\n             use a whole number from 1 to 10\n\
         \x20 line 4    quota.limt\n             unknown setting; known here: budget, limit, mode\n\
         \x20 line 6    tls.handshake = \"0s\"\n             use a time from 1s to 1m, for example \"5s\""
    );
}

#[test]
fn text_that_is_not_toml_is_one_problem_with_its_line() {
    let problems = source("[quota\nmode = 1").reader().err().unwrap();
    assert_eq!((problems.list.len(), problems.list[0].line), (1, Some(1)));
}

#[test]
fn an_unknown_environment_variable_is_reported() {
    let source = source("");
    let reader = source.reader().unwrap();
    let problems = reader.finish(Some(())).unwrap_err();
    assert_eq!(problems.list[0].setting, "environment variable APP_QUOTA_BUDGET");
}

#[test]
fn service_variables_of_kubernetes_are_no_mistake() {
    let is_of_a_service = |name: &str, value: &str| {
        let environment = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let source = Source::from_text("x", "", "TOLLHOUSE_GATEWAY", environment);
        source.reader().unwrap().finish(Some(())).is_ok()
    };
    for (name, value) in [
        ("TOLLHOUSE_GATEWAY_SERVICE_HOST", "10.0.0.7"),
        ("TOLLHOUSE_GATEWAY_SERVICE_PORT", "443"),
        ("TOLLHOUSE_GATEWAY_SERVICE_PORT_HTTPS", "443"),
        ("TOLLHOUSE_GATEWAY_PORT", "tcp://10.0.0.7:443"),
        ("TOLLHOUSE_GATEWAY_PORT_443_TCP", "tcp://10.0.0.7:443"),
        ("TOLLHOUSE_GATEWAY_PORT_443_TCP_PROTO", "tcp"),
        ("TOLLHOUSE_GATEWAY_PORT_443_TCP_PORT", "443"),
        ("TOLLHOUSE_GATEWAY_PORT_443_TCP_ADDR", "10.0.0.7"),
        ("TOLLHOUSE_GATEWAY_PORT_443_UDP_ADDR", "10.0.0.7"),
        ("TOLLHOUSE_GATEWAY_ADMIN_SERVICE_HOST", "10.0.0.8"),
        ("TOLLHOUSE_GATEWAY_ADMIN_PORT_9901_TCP_ADDR", "10.0.0.8"),
    ] {
        assert!(is_of_a_service(name, value), "{name}");
    }
    for (name, value) in [
        ("TOLLHOUSE_GATEWAY_LISTEN_PORT", "80"),
        ("TOLLHOUSE_GATEWAY_PORT", "80"),
        ("TOLLHOUSE_GATEWAY_PORT_HTTP_TCP", "80"),
        ("TOLLHOUSE_GATEWAY_SERVICE", "x"),
    ] {
        assert!(!is_of_a_service(name, value), "{name}");
    }
}

#[test]
fn a_password_in_a_url_is_not_repeated() {
    let source = source("urls = [\"redis://:hunter2@cache:6379\"]\n");
    let reader = source.reader().unwrap();
    assert!(reader.root().list::<contract::project::ProjectId>("urls").is_none());
    let problems = reader.finish(Some(())).unwrap_err().to_string();
    assert!(problems.contains("\"redis://…@cache:6379\"") && !problems.contains("hunter2"), "{problems}");
}

#[test]
fn lists_and_tables_keep_their_places() {
    let source =
        Source::from_text("x", "names = [\"a\", \"B\"]\n[[routes]]\npath = \"/v1\"\nnope = 1\n", "X", BTreeMap::new());
    let reader = source.reader().unwrap();
    let names = reader.root().list::<contract::project::ProjectId>("names");
    let routes = reader.root().tables("routes");
    assert_eq!(routes[0].required::<String>("path", "\"/\""), Some("/v1".to_owned()));
    assert!(names.is_none());
    let problems = reader.finish(Some(())).unwrap_err();
    let lines: Vec<_> = problems.list.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(1), Some(4)]);
}
