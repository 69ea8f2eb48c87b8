//! API keys and private keys do not leak into databases, logs or metrics.

use std::path::Path;

use crate::world::Platform;

// promise: edge.30
#[tokio::test]
async fn no_key_is_in_a_database_a_log_or_a_metric() {
    let mut platform = Platform::start();
    let (client, shop) = (platform.client(), platform.project("pro"));
    assert_eq!(shop.list(&platform, &client).await.len(), 40);
    let url = format!("http://{}:{}/?token={}", shop.host, platform.http_port(), shop.key);
    client.get(&url).bearer_auth(&shop.key).send().await.unwrap();
    let metrics = platform.admin("/metrics").await;
    assert!(metrics.contains("edge_requests_total") && !metrics.contains(&shop.key));
    platform.stop();
    let mut logs = 0;
    for file in files(&platform.path("")) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = std::fs::read(&file).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        logs += usize::from(holds("key_exposed_in_plain_http"));
        if name != "demo.json" {
            assert!(!holds(&shop.key), "an API key rests in {}", file.display());
        }
        if !["ca.key", "platform.key"].contains(&name.as_str()) {
            assert!(!holds("PRIVATE KEY"), "a private key rests unsealed in {}", file.display());
        }
    }
    assert_eq!(logs, 1, "the exposed key was reported, by its id");
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}
