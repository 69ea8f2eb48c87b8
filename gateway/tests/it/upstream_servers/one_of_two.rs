//! Two servers of other people, over HTTP/1.1 and HTTP/2. One is stopped, goes on, is killed and starts again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_get_fails_while_one_of_two_servers_works() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    file(directory.path(), "index.html", "hello");
    let nginx = async |port: u16| {
        let text = format!(
            "daemon off; master_process off; error_log stderr; pid {place}/{port}.pid; worker_processes 1; events {{}}\n\
             http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
             fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
             server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n"
        );
        let settings = file(directory.path(), &format!("{port}.conf"), &text);
        spawn(&program("nginx"), &["-c", settings.to_str().unwrap(), "-p", &place, "-e", "stderr"])
    };
    let nghttpd =
        async |port: u16| spawn(&program("nghttpd"), &["-d", &place, "--no-tls", "-a", "127.0.0.1", &port.to_string()]);
    let (one, two) = (started(nginx).await, started(nginx).await);
    one_of_two_works("http", one, two, nginx).await;
    let (one, two) = (started(nghttpd).await, started(nghttpd).await);
    one_of_two_works("h2c", one, two, nghttpd).await;
}

async fn one_of_two_works(
    scheme: &str,
    (mut one, port): (Child, u16),
    (_two, other): (Child, u16),
    mut server: impl AsyncFnMut(u16) -> Child,
) {
    let world = World::with(|setup| {
        setup.blog_urls = vec![format!("{scheme}://127.0.0.1:{port}"), format!("{scheme}://127.0.0.1:{other}")];
        setup.blog = "connect_timeout = \"2s\"\nfirst_byte_timeout = \"500ms\"";
    })
    .await;
    let (clock, served) = (world.clock.clone(), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut step = tokio::time::interval(Duration::from_millis(20));
        loop {
            step.tick().await;
            clock.advance(Duration::from_millis(20));
        }
    });
    for _ in 0..8 {
        let (client, served) = (world.h2(BLOG).await, served.clone());
        tasks.spawn(async move {
            loop {
                let reply = client.ask(&Ask::get(BLOG, "/index.html")).await;
                assert_eq!((reply.status, reply.text()), (200, "hello"), "{reply:?}");
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    // Fails with the first client that got another reply.
    let mut serving = async |requests: usize| {
        let goal = served.load(Ordering::SeqCst) + requests;
        eventually("requests that are served", async || {
            if let Some(ended) = tasks.try_join_next() {
                ended.unwrap();
            }
            (served.load(Ordering::SeqCst) >= goal).then_some(())
        })
        .await;
    };
    let up = async |expected: u64| {
        eventually("the addresses that work", async || {
            let status: serde_json::Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
            let upstreams = status["upstreams"].as_array().unwrap();
            upstreams.iter().any(|upstream| upstream["name"] == "blog" && upstream["up"] == expected).then_some(())
        })
        .await;
    };
    serving(100).await;
    let id = Pid::from_raw(one.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    up(1).await;
    serving(200).await;
    kill_process(id, Signal::CONT).unwrap();
    up(2).await;
    serving(200).await;
    one.kill().await.unwrap();
    serving(200).await;
    let _again = server(port).await;
    up(2).await;
    serving(200).await;
}
