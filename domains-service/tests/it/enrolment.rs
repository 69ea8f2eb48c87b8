//! Credentials in files over several starts: a revoked credential stays refused, and an unusable file stops nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chassis::guard::operator_token;
use chassis::secret::{Secret, write_private};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stores;
use crate::world::{Bend, Platform, eventually};

/// The file of revoked credentials.
const REVOKED: &str = "revoked";

/// The differences between gateways and services in this test.
struct Case {
    kind: &'static str,
    folder: &'static str,
    /// A question that its credential opens.
    path: &'static str,
}

const CASES: [Case; 2] = [
    Case { kind: "gateway", folder: "gateways", path: "/internal/edge/feed?node=a&after=0&keyring=1" },
    Case { kind: "service", folder: "services", path: "/internal/trust" },
];

impl Case {
    fn file(&self, directory: &TempDir, name: &str) -> PathBuf {
        directory.path().join(self.folder).join(format!("{name}.key"))
    }

    /// The status of its question with this credential.
    async fn ask(&self, platform: &Platform, credential: &Secret) -> u16 {
        let url = format!("{}{}", platform.internal, self.path);
        platform.client.get(url).bearer_auth(&*credential.to_token()).send().await.unwrap().status().as_u16()
    }

    async fn add(&self, platform: &Platform, name: &str) -> Secret {
        let made = platform.operator("POST", "/credentials", json!({ "name": name, "kind": self.kind })).await;
        assert_eq!(made.status, 201, "{made:?}");
        Secret::parse(made.body["credential"].as_str().unwrap()).unwrap()
    }
}

fn write(file: &Path, credential: &Secret) {
    write_private(file, credential.to_text().as_bytes()).unwrap();
}

async fn start(directory: &Arc<TempDir>) -> Platform {
    start_over(directory, directory.clone()).await
}

/// A service with the files of this directory, over the database of that one.
async fn start_over(directory: &Arc<TempDir>, database: Arc<TempDir>) -> Platform {
    let folder = |name: &str| {
        let folder = directory.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Some(folder)
    };
    let (gateways_directory, services_directory) = (folder("gateways"), folder("services"));
    let revocations_file = Some(directory.path().join(REVOKED));
    let bend = Bend { directory: Some(database), revocations_file, ..Bend::default() };
    Platform::bent(Bend { gateways_directory, services_directory, ..bend }).await
}

/// The reasons and the files that the status names.
async fn refused(platform: &Platform) -> Vec<(String, String)> {
    let status = platform.operator("GET", "/status", Value::Null).await.body;
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let all = status["credential_files_refused"].as_array().unwrap().iter();
    all.map(|one| (text(one, "reason"), text(one, "file"))).collect()
}

#[tokio::test]
async fn a_revoked_credential_in_a_file_stays_refused_at_every_start() {
    for case in CASES {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let file = case.file(&directory, "edge");
        let shown = file.display().to_string();
        let stolen = Secret::generate().unwrap();
        write(&file, &stolen);
        let mut platform = start(&directory).await;
        assert_eq!(case.ask(&platform, &stolen).await, 200);
        let revoked = platform.operator("DELETE", &format!("/credentials/{}/edge", case.kind), Value::Null).await;
        assert_eq!(
            (revoked.status, &revoked.body["revoked"][0]["file"]),
            (200, &json!(shown)),
            "it says which file to replace"
        );
        assert_eq!(case.ask(&platform, &stolen).await, 401);
        platform.stop().await;

        let mut platform = start(&directory).await;
        assert_eq!(case.ask(&platform, &stolen).await, 401, "after a start");
        assert_eq!(refused(&platform).await, [("revoked".to_owned(), shown.clone())]);
        let second = case.add(&platform, "edge").await;
        assert_eq!((case.ask(&platform, &stolen).await, case.ask(&platform, &second).await), (401, 200));
        platform.stop().await;

        let mut platform = start(&directory).await;
        let asked = (case.ask(&platform, &stolen).await, case.ask(&platform, &second).await);
        assert_eq!(asked, (401, 200), "{}: a start changes nothing", case.kind);
        assert_eq!(refused(&platform).await, [("revoked".to_owned(), shown.clone())]);
        platform.stop().await;

        write(&file, &second);
        let mut platform = start(&directory).await;
        assert_eq!((case.ask(&platform, &stolen).await, case.ask(&platform, &second).await), (401, 200));
        assert_eq!(refused(&platform).await, []);
        platform.stop().await;

        // An old copy of the file is restored.
        write(&file, &stolen);
        let mut platform = start(&directory).await;
        assert_eq!((case.ask(&platform, &stolen).await, case.ask(&platform, &second).await), (401, 200));
        assert_eq!(refused(&platform).await, [("revoked".to_owned(), shown)]);
        platform.stop().await;
    }
}

#[tokio::test]
async fn a_file_replaces_a_credential_from_a_file_but_not_one_of_the_api() {
    for case in CASES {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let file = case.file(&directory, "edge");
        let [first, second] = [(); 2].map(|()| Secret::generate().unwrap());
        write(&file, &first);
        start(&directory).await.stop().await;
        write(&file, &second);
        let mut platform = start(&directory).await;
        assert_eq!((case.ask(&platform, &first).await, case.ask(&platform, &second).await), (401, 200));
        let added = case.add(&platform, "added").await;
        platform.stop().await;
        write(&file, &first);
        write(&case.file(&directory, "added"), &Secret::generate().unwrap());
        let mut platform = start(&directory).await;
        assert_eq!((case.ask(&platform, &first).await, case.ask(&platform, &second).await), (401, 200));
        assert_eq!(case.ask(&platform, &added).await, 200);
        let reasons: Vec<_> = refused(&platform).await.into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(reasons, ["replaced", "revoked"]);
        platform.stop().await;
    }
}

#[tokio::test]
async fn duplicate_empty_and_revoked_files_stop_nothing_and_the_others_are_enrolled() {
    for case in CASES {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let mut platform = start(&directory).await;
        let [made, gone] = [case.add(&platform, "made").await, case.add(&platform, "gone").await];
        assert_eq!(
            platform.operator("DELETE", &format!("/credentials/{}/gone", case.kind), Value::Null).await.status,
            200
        );
        platform.stop().await;

        let [first, last] = [(); 2].map(|()| Secret::generate().unwrap());
        for (name, credential) in
            [("a-good", &first), ("b-copy", &first), ("c-made", &made), ("e-gone", &gone), ("z-good", &last)]
        {
            write(&case.file(&directory, name), credential);
        }
        write_private(&case.file(&directory, "d-empty"), b"").unwrap();
        let mut platform = start(&directory).await;
        for (credential, status) in [(&first, 200), (&last, 200), (&made, 200), (&gone, 401)] {
            assert_eq!(case.ask(&platform, credential).await, status, "{}", case.kind);
        }
        let expected = [("doubled", "b-copy"), ("doubled", "c-made"), ("unreadable", "d-empty"), ("revoked", "e-gone")];
        let expected =
            expected.map(|(reason, name)| (reason.to_owned(), case.file(&directory, name).display().to_string()));
        assert_eq!(refused(&platform).await, expected);
        let metrics = platform.metrics().await;
        assert!(metrics.contains("domains_credential_files_refused{reason=\"doubled\"} 2\n"), "{metrics}");
        let listed = platform.operator("GET", "/credentials", Value::Null).await.body;
        let nodes = listed["credentials"].as_array().unwrap().iter().filter(|one| one["kind"] == case.kind);
        let names: Vec<_> = nodes.map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["a-good", "gone", "made", "z-good"]);
        platform.stop().await;
    }
}

#[tokio::test]
async fn a_secret_with_another_purpose_is_refused_as_a_credential() {
    for case in CASES {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let [platform_secret, sealing, older] = [7, 8, 9].map(|byte| Secret::new(vec![byte; 32]));
        let good = Secret::generate().unwrap();
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let both = [sealing.to_text().as_str(), older.to_text().as_str()].join("\n");
        for (name, text) in [
            ("a-good", good.to_text().as_str()),
            ("b-platform", platform_secret.to_text().as_str()),
            ("c-sealing", sealing.to_text().as_str()),
            ("d-both-sealing", both.as_str()),
            ("e-pem", pem.as_str()),
            ("f-command-line", operator_token(&platform_secret).to_text().as_str()),
        ] {
            write_private(&case.file(&directory, name), text.as_bytes()).unwrap();
        }
        let mut platform = start(&directory).await;
        for (credential, status) in [(&good, 200), (&platform_secret, 401), (&sealing, 401)] {
            assert_eq!(case.ask(&platform, credential).await, status, "{}", case.kind);
        }
        let of_files: Vec<_> = refused(&platform).await.into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(of_files, ["other_secret", "other_secret", "other_secret", "other_secret", "doubled"]);
        let metrics = platform.metrics().await;
        assert!(metrics.contains("domains_credential_files_refused{reason=\"other_secret\"} 4\n"), "{metrics}");
        platform.stop().await;
    }
}

/// The names of credentials of a kind that the database has as valid.
async fn good(platform: &Platform, kind: &str) -> Vec<String> {
    let listed = platform.operator("GET", &format!("/credentials?kind={kind}"), Value::Null).await.body;
    let all = listed["credentials"].as_array().unwrap().iter();
    all.filter(|one| one["revoked_at"].is_null()).map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

impl Case {
    async fn revoke(&self, platform: &Platform, name: &str) -> u16 {
        platform.operator("DELETE", &format!("/credentials/{}/{name}", self.kind), Value::Null).await.status
    }
}

#[tokio::test]
async fn a_revoked_credential_stays_refused_over_a_database_from_before_its_revocation() {
    for case in CASES {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let [of_file, honest] = [(); 2].map(|()| Secret::generate().unwrap());
        write(&case.file(&directory, "of-file"), &of_file);
        write(&case.file(&directory, "honest"), &honest);
        let mut platform = start(&directory).await;
        let added = case.add(&platform, "added").await;
        let token = platform.operator("POST", "/credentials", json!({ "name": "ada", "kind": "operator" })).await;
        let token = token.body["token"].as_str().unwrap().to_owned();
        let before = Arc::new(stores::copied(directory.path()));
        let later = case.add(&platform, "later").await;
        for name in ["of-file", "added", "later"] {
            assert_eq!(case.revoke(&platform, name).await, 200, "{name}");
        }
        assert_eq!(platform.operator("DELETE", "/credentials/operator/ada", Value::Null).await.status, 200);
        platform.stop().await;
        write(&case.file(&directory, "later"), &later);

        let mut platform = start_over(&directory, before.clone()).await;
        for (name, stolen) in [("of-file", &of_file), ("added", &added), ("later", &later)] {
            assert_eq!(case.ask(&platform, stolen).await, 401, "{name}");
        }
        let status = platform.client.get(format!("{}/internal/status", platform.internal)).bearer_auth(&token);
        assert_eq!(status.send().await.unwrap().status(), 401);
        assert_eq!(case.ask(&platform, &honest).await, 200, "a credential that was not revoked is good");
        assert_eq!(
            (good(&platform, case.kind).await, good(&platform, "operator").await.len()),
            (vec!["honest".to_owned()], 1)
        );
        // The same while the service runs: a standby takes over.
        stores::execute(before.path(), "UPDATE credentials SET revoked_at = NULL WHERE name IN ('added', 'ada')").await;
        eventually(async || {
            let good = (good(&platform, case.kind).await, good(&platform, "operator").await);
            if (good.0.len(), good.1.len()) == (1, 1) {
                Ok(())
            } else {
                Err(format!("they are revoked again: {good:?}"))
            }
        })
        .await;
        assert_eq!((case.ask(&platform, &added).await, case.ask(&platform, &honest).await), (401, 200));
        platform.stop().await;
    }
}

#[tokio::test]
async fn a_revocation_that_is_not_in_the_file_is_confirmed_when_it_is_repeated() {
    let [gateway, _] = CASES;
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let file = directory.path().join(REVOKED);
    let mut platform = start(&directory).await;
    let revoke = async |path: &str| platform.operator("DELETE", &format!("/credentials/{path}"), Value::Null).await;
    let trouble =
        async || platform.operator("GET", "/status", Value::Null).await.body["revocations_file_trouble"].take();
    let ada = platform.operator("POST", "/credentials", json!({ "name": "ada", "kind": "operator" })).await;
    let ada = ada.body["token"].as_str().unwrap().to_owned();
    let wanted = json!({ "name": "stolen", "kind": "gateway" });
    let made = platform.client.post(format!("{}/internal/credentials", platform.internal)).bearer_auth(ada);
    let made: Value = made.json(&wanted).send().await.unwrap().json().await.unwrap();
    let stolen = Secret::parse(made["credential"].as_str().unwrap()).unwrap();
    assert_eq!(trouble().await, Value::Null);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let refused = revoke("operator/ada?made=true").await;
    assert_eq!(refused.status, 503);
    assert!(refused.body["message"].as_str().unwrap().contains("revoke the credential again"), "{refused:?}");
    assert_eq!(gateway.ask(&platform, &stolen).await, 401, "it is revoked all the same");
    let shown = trouble().await.to_string();
    assert!(shown.contains("cannot write revoked credentials") && shown.contains(REVOKED), "{shown}");

    std::fs::remove_dir(&file).unwrap();
    let again = revoke("operator/ada?made=true").await;
    let names: Vec<_> = again.body["revoked"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!((again.status, names), (200, vec![json!("ada"), json!("stolen")]), "nothing was lost with the 503");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("ada") && text.contains("stolen"), "{text}");
    assert_eq!(trouble().await, Value::Null);
    platform.stop().await;
}

#[tokio::test]
async fn a_service_whose_file_of_revoked_credentials_is_unusable_does_not_start() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    // A directory in place of the file, and a place where not even root makes one.
    for file in [directory.path(), Path::new("/proc/none/revoked")] {
        let file = file.to_owned();
        let bend = Bend { directory: Some(directory.clone()), revocations_file: Some(file.clone()), ..Bend::default() };
        let Err(error) = Box::pin(Platform::try_bent(bend)).await else { panic!("it starts with {}", file.display()) };
        let error = format!("{error:#}");
        for words in [&*file.display().to_string(), "readable and writable for this service"] {
            assert!(error.contains(words), "{words:?} is not in {error}");
        }
    }
}
