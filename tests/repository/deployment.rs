//! The files of the deployment in containers agree with each other and with the processes they configure.
//! `tests/compose/run.sh` runs the deployment.

use std::collections::{BTreeMap, BTreeSet};

use crate::{shipped, tree};

/// `${NAME:-default}` in a text: every name with its default.
fn substitutions(text: &str) -> BTreeSet<(String, String)> {
    let parts = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    let pairs = parts.map(|(inside, _)| inside.split_once(":-").unwrap_or_else(|| panic!("{inside} has no default")));
    pairs.map(|(name, default)| (name.to_owned(), default.to_owned())).collect()
}

#[test]
fn the_example_names_every_setting_of_the_deployment_with_its_default() {
    let example = tree::read(".env.example");
    let lines = example.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    let example: BTreeSet<_> = lines.map(|(name, default)| (name.to_owned(), default.to_owned())).collect();
    assert!(example.len() > 10, "the search for settings finds {example:?}");
    assert_eq!(substitutions(&tree::read("docker-compose.yml")), example);
}

#[test]
fn every_process_accepts_its_settings_of_the_deployment() {
    let compose = tree::read("docker-compose.yml");
    let plans = tree::root().join("config/plans.toml");
    for (process, prefix, least) in
        [("gateway", "GATEWAY", 15), ("orders-service", "ORDERS", 5), ("domains-service", "DOMAINS", 8)]
    {
        let variables = compose.lines().filter_map(|line| {
            let (name, value) = line.trim().strip_prefix(&format!("TOLLHOUSE_{prefix}_"))?.split_once(": ")?;
            Some((name.to_owned(), value.to_owned()))
        });
        let mut environment = BTreeMap::new();
        for (name, value) in variables {
            // Stand-ins for what only containers have: a value for secrets, the mounted file for plans.
            let secret =
                ["SECRET_FILE", "PASSWORD_FILE", "CREDENTIAL_FILE"].iter().any(|ending| name.ends_with(ending));
            let known = substitutions(&value).into_iter().next();
            let (name, value) = match (secret, known) {
                (true, _) => (name.trim_end_matches("_FILE").to_owned(), shipped::SECRET.to_owned()),
                (_, Some((variable, default))) => {
                    // This machine's network replaces the networks of containers.
                    let here = if variable.ends_with("_SUBNET") { "127.0.0.0/8" } else { default.as_str() };
                    (name, value.replace(&format!("${{{variable}:-{default}}}"), here))
                }
                (_, None) if name == "STORE_URL_FILE" => {
                    ("STORE_URL".to_owned(), "postgres://somebody:something@postgres:5432/orders".to_owned())
                }
                // Names and certificates of containers do not exist here; only https matters.
                (_, None)
                    if ["INTERNAL_TLS_", "ADMIN_TLS_"].iter().any(|section| name.contains(section))
                        || name.ends_with("S_CA_CERTIFICATE_FILE") =>
                {
                    continue;
                }
                (_, None)
                    if ["FEED_CA_CERTIFICATE_FILE", "TLS_CERTIFICATE_FILE", "TLS_KEY_FILE"]
                        .contains(&name.as_str()) =>
                {
                    continue;
                }
                (_, None) if name == "PLANS" => (name, plans.to_str().unwrap().to_owned()),
                (_, None) => (name, value),
            };
            environment.insert(name, value);
        }
        assert!(environment.len() >= least, "{process} gets only {environment:?}");
        let environment: Vec<_> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut files = vec![format!("config/{process}.toml")];
        if process == "domains-service" {
            files.push("config/dev/domains-service.toml".to_owned());
        }
        for file in files {
            // The test world's CA certificate is created at its start; any file will do.
            let text = tree::read(&file).replace("/data/test-world/pebble-ca.pem", plans.to_str().unwrap());
            // The sample files name secret files of other deployments; the given value overrides them.
            if let Err(problems) = shipped::read(process, &file, &text, &environment) {
                panic!("{problems}");
            }
        }
    }
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_project() {
    let toolchain = tree::read("rust-toolchain.toml");
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"')).unwrap();
    let dockerfile = tree::read("Dockerfile");
    assert!(dockerfile.contains(&format!("/rust:{version}-slim-bookworm AS build")), "{version}");
    assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={version}\n")), "{version}");
}

// A volume takes its owner from the folder of the image that it covers; without that folder root owns it, and the
// process cannot write.
#[test]
fn the_image_has_a_folder_of_its_user_for_every_volume() {
    let (dockerfile, compose) = (tree::read("Dockerfile"), tree::read("docker-compose.yml"));
    let volumes = compose.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(":/"));
    let ours = |place: &&str| ["shares/", "data", "run/tollhouse"].iter().any(|start| place.starts_with(start));
    let places: BTreeSet<&str> = volumes.map(|(_, place)| place.trim_end_matches(":ro")).filter(ours).collect();
    assert!(places.contains("shares/postgres") && places.contains("data"), "{places:?}");
    for place in places {
        let made = |line: &str| {
            line.starts_with("COPY --from=empty --chown=65532:65532 ") && line.ends_with(&format!(" /{place}"))
        };
        assert!(dockerfile.lines().any(made), "Dockerfile makes no /{place}");
    }
}

// Cargo reads the manifest of every member, whatever it builds.
#[test]
fn the_build_of_the_image_sees_what_cargo_reads() {
    let manifest: toml_edit::DocumentMut = tree::read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let seen = tree::read(".dockerignore");
    let mut needed: Vec<&str> = members.iter().map(|member| member.as_str().unwrap()).collect();
    assert!(needed.contains(&"gateway"), "{needed:?}");
    needed.extend(["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"]);
    for name in needed {
        assert!(seen.lines().any(|line| line.strip_prefix('!') == Some(name)), ".dockerignore leaves {name} out");
    }
}

// A damaged cluster can be the last copy of the data.
#[test]
fn the_start_of_postgresql_never_removes_an_existing_cluster() {
    let volume = tempfile::tempdir().unwrap();
    let cluster = volume.path().join("cluster");
    std::fs::create_dir_all(cluster.join("base")).unwrap();
    std::fs::write(cluster.join("base/1"), "all the orders").unwrap();
    for version in [None, Some("")] {
        if let Some(text) = version {
            std::fs::write(cluster.join("PG_VERSION"), text).unwrap();
        }
        let mut start = std::process::Command::new("bash");
        let output =
            start.arg(tree::root().join("config/postgres-start")).env("PGDATA", volume.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("is no cluster: PG_VERSION is missing or empty"), "{said}");
        assert_eq!(std::fs::read_to_string(cluster.join("base/1")).unwrap(), "all the orders");
    }
}

#[test]
fn the_container_that_finishes_a_restore_has_both_databases() {
    let compose = tree::read("docker-compose.yml");
    let (_, service) = compose.split_once("\n  finish-restore:\n").unwrap();
    let service = service.split("\n\n").next().unwrap();
    for line in ["networks: [database]", "- domains-share:/run/domains:ro", "- orders-share:/run/orders:ro"] {
        assert!(service.contains(line), "{line}");
    }
}
