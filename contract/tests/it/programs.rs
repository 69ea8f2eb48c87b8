//! The programs of `docs/tenant/identity.md`, unchanged, verify a gateway's signatures.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use contract::identity::Caller;
use contract::key::{Environment, Scopes};
use contract::plan::Plan;
use contract::time::UnixSeconds;
use contract::token::{Claims, KeySet, SigningKey};

/// A program that prints the caller that its arguments, a token and a key set, identify.
struct Program {
    command: &'static str,
    flag: &'static str,
    language: &'static str,
    call: &'static str,
}

const PYTHON: Program = Program {
    command: "python3",
    flag: "-c",
    language: "python",
    call: "import sys\nprint(identity(sys.argv[1], json.loads(sys.argv[2]), 'shop')['sub'])",
};

const NODE: Program = Program {
    command: "node",
    flag: "-e",
    language: "javascript",
    call: "console.log(identity(process.argv[1], JSON.parse(process.argv[2]), 'shop').sub)",
};

impl Program {
    /// The program of the documentation, with a line that calls it.
    fn text(&self) -> String {
        let page = include_str!("../../../docs/tenant/identity.md");
        let (_, rest) =
            page.split_once(&format!("```{}\n", self.language)).expect("a program in docs/tenant/identity.md");
        let (program, _) = rest.split_once("```").expect("its end");
        format!("{program}\n{}\n", self.call)
    }

    /// The caller that it accepts; `None` when it refuses.
    fn accepts(&self, token: &str, keys: &KeySet) -> Option<String> {
        let ran = Command::new(self.command).args([self.flag, &self.text(), token, &keys.to_json()]).output();
        let ran = ran.unwrap_or_else(|error| panic!("{} does not run ({error}): install it", self.command));
        let said = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
        ran.status.success().then_some(said)
    }
}

#[expect(clippy::disallowed_methods, reason = "the programs look at the clock of this machine")]
fn now() -> UnixSeconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixSeconds(now.as_secs().try_into().unwrap())
}

fn claims(issued_at: UnixSeconds) -> Claims {
    let caller = Caller {
        key: "key_aaaaaaaaaaaaaaaa".parse().unwrap(),
        project: "demo".parse().unwrap(),
        project_uid: "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
        plan: Plan::Pro,
        scopes: Scopes::all(),
        environment: Environment::Live,
    };
    Claims { audience: "shop".to_owned(), caller: Some(caller), site_project: None, issued_at }
}

fn check(program: &Program) {
    let (key, stranger) = (SigningKey::from_seed(&[1; 32]).unwrap(), SigningKey::from_seed(&[2; 32]).unwrap());
    let keys: KeySet = [key.public().clone()].into_iter().collect();
    let good = claims(now());
    assert_eq!(program.accepts(&key.sign(&good), &keys).as_deref(), Some("key_aaaaaaaaaaaaaaaa"));
    let elsewhere = Claims { audience: "orders".to_owned(), ..good.clone() };
    let old = claims(now().plus(-61));
    let (token, other) = (key.sign(&good), key.sign(&old));
    let (_, signature) = other.rsplit_once('.').unwrap();
    let forged = format!("{}.{signature}", token.rsplit_once('.').unwrap().0);
    for refused in [key.sign(&elsewhere), other.clone(), stranger.sign(&good), forged] {
        assert_eq!(program.accepts(&refused, &keys), None, "{refused}");
    }
}

#[test]
fn the_program_for_python_verifies_tokens() {
    check(&PYTHON);
}

#[test]
fn the_program_for_node_verifies_tokens() {
    check(&NODE);
}
