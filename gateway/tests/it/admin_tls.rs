//! The admin listener over TLS: operators' passes reach this gateway only.

use chassis::peer::client_tls;

use crate::world::{World, certificates, eventually};

/// A client of the gateway with this name, wherever it listens.
fn client(name: &str) -> reqwest::Client {
    let tls = client_tls(certificates::root().as_bytes(), &name.parse().unwrap()).unwrap();
    reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

#[tokio::test]
async fn the_admin_listener_presents_its_certificate_and_refuses_plain_text() {
    let place = tempfile::tempdir().unwrap();
    let (chain, key) = certificates::leaf(&["edge-0"]);
    let [chain_file, key_file] = ["admin.pem", "admin.key"].map(|name| place.path().join(name));
    std::fs::write(&chain_file, chain).unwrap();
    chassis::secret::write_private(&key_file, key.as_bytes()).unwrap();
    let (chain, key) = (chain_file.display(), key_file.display());
    let tables = format!("[admin_tls]\ncertificate_file = \"{chain}\"\nkey_file = \"{key}\"\n");
    let world = World::with(|setup| setup.blog_tables = tables).await;
    let url = |scheme: &str, path: &str| format!("{scheme}://{}{path}", world.admin.0);
    let pass = world.operator().trim().trim_start_matches("Authorization: ").to_owned();
    eventually("the gateway knows operators", async || {
        let request = client("edge-0").get(url("https", "/changes")).header("authorization", &pass);
        (request.send().await.unwrap().status() == 200).then_some(())
    })
    .await;
    let another = client("edge-1").get(url("https", "/changes")).header("authorization", &pass).send().await;
    assert!(another.is_err(), "it is not that gateway: {another:?}");
    let plain = reqwest::get(url("http", "/livez")).await;
    assert!(plain.is_err(), "it answers in plain text: {plain:?}");
    world.end().await;
}
