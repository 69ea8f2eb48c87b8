//! The page of each conflict, and its change after the conflict is solved.

use crate::person::Person;

const DOMAINS: &str = "/projects/demo-pro/domains";

async fn add(person: &Person, name: &str) {
    add_to(person, DOMAINS, name).await;
}

async fn add_to(person: &Person, domains: &str, name: &str) {
    person.go(&format!("{domains}/new")).await;
    person.browser.fill("#name", name).await;
    person.browser.click("button[formmethod=post]").await;
    person.browser.complaints().await; // a check of a name that is typed may be refused: the console notes it
}

/// Triggers a DNS check, as the schedule would a little later: once in ten seconds.
async fn look_again(person: &Person, name: &str) {
    let verify = ["domain", "verify", "demo-pro", name];
    let asked = async || person.platform.command(&verify).status.success();
    person.browser.until("another look at DNS is allowed", asked).await;
}

// rule: 1.16, 1.17
#[tokio::test(flavor = "multi_thread")]
async fn each_conflict_names_who_must_act_the_found_records_and_the_fix() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    let (_, target) = &person.platform.records("demo-pro", "x.customer.test")[0];
    person.platform.dns("a.customer.test", "A", "203.0.113.7");
    person.platform.dns("aaaa.customer.test", "AAAA", "2001:db8::7");
    person.platform.dns("wrong.customer.test", "CNAME", "elsewhere.example.net");
    person.platform.dns("caa.customer.test", "CNAME", target);
    person.platform.dns("caa.customer.test", "CAA", "0 issue \"digicert.example\"");
    for (name, code, observed) in [
        ("a.customer.test", "DNS_CONFLICTING_A", "203.0.113.7"),
        ("aaaa.customer.test", "DNS_CONFLICTING_AAAA", "2001:db8::7"),
        ("wrong.customer.test", "DNS_CNAME_MISMATCH", "elsewhere.example.net"),
        ("caa.customer.test", "CAA_FORBIDS", "digicert.example"),
    ] {
        add(&person, name).await;
        browser.reads("Needs you").await;
        browser.reads(&format!("You must act · {code}")).await;
        for words in ["Problems", observed, "What to do"] {
            browser.reads(words).await;
        }
    }
    person.go(&format!("{DOMAINS}/a.customer.test")).await;
    person.inspect("domain-conflict").await;
    person.go(DOMAINS).await;
    person.inspect("domains-conflicts").await;

    // An unregistered name is reported before it is added.
    person.go(&format!("{DOMAINS}/new")).await;
    browser.fill("#name", "co.uk").await;
    browser.reads("public_suffix").await;
}

/// A name, its DNS records, and the text of its page.
struct Case {
    name: &'static str,
    /// Lines of the test world; `TARGET` is where the CNAME has to point.
    world: &'static [&'static str],
    state: &'static str,
    code: &'static str,
    /// The found or missing records, and the fix.
    words: [&'static str; 2],
}

const REST_OF_THE_MATRIX: &[Case] = &[
    Case {
        name: "both.customer.test",
        world: &["both.customer.test A 203.0.113.7", "both.customer.test AAAA 2001:db8::7"],
        state: "Needs you",
        code: "DNS_CONFLICTING_AAAA",
        words: ["A and AAAA records block the CNAME", "Delete the AAAA record of both.customer.test"],
    },
    Case {
        name: "chained.customer.test",
        world: &["chained.customer.test CNAME middle.customer.test", "middle.customer.test CNAME TARGET"],
        state: "Needs you",
        code: "DNS_CNAME_CHAINED",
        words: ["through middle.customer.test", "Change the CNAME of chained.customer.test from middle.customer.test"],
    },
    Case {
        name: "proxied.customer.test",
        world: &["proxied.customer.test A 104.16.1.1"],
        state: "Needs you",
        code: "DNS_PROXIED",
        words: ["is proxied by Cloudflare", "Switch the proxy off for proxied.customer.test"],
    },
    Case {
        name: "foreign.test",
        world: &["foreign.test A 203.0.113.9"],
        state: "Needs you",
        code: "DNS_APEX_ADDRESS_MISMATCH",
        words: ["addresses that are not ours: 203.0.113.9", "Create an ALIAS (or ANAME) record: foreign.test ALIAS"],
    },
    Case {
        name: "www.missing.co.uk",
        world: &[],
        state: "Waiting for DNS",
        code: "DNS_ZONE_MISSING",
        words: ["not registered, has expired, or its nameservers are not set", "Register the domain"],
    },
    Case {
        name: "shop.quiet.test",
        world: &["! quiet.test silent"],
        state: "Waiting for DNS",
        code: "DNS_TIMEOUT",
        words: ["The nameservers of shop.quiet.test do not answer.", "ask your DNS provider"],
    },
    Case {
        name: "shop.broken.test",
        world: &["! broken.test servfail"],
        state: "Waiting for DNS",
        code: "DNS_SERVFAIL",
        words: ["give resolvers no usable answer", "ask your DNS provider"],
    },
    Case {
        name: "shop.lame.test",
        world: &["! lame.test lame @2"],
        state: "Waiting for DNS",
        code: "DNS_LAME_NS",
        words: [
            "ns2.lame.test (127.0.0.2) is listed as a nameserver but does not know the zone",
            "Does not know the zone",
        ],
    },
    Case {
        name: "shop.account.test",
        world: &[
            "shop.account.test CNAME TARGET",
            "account.test CAA 0 issue \"pebble.example; accounturi=https://pebble.example/another\"",
        ],
        state: "Needs you",
        code: "CAA_ACCOUNT_MISMATCH",
        words: ["for another account than ours", "Add: account.test CAA 0 issue \"pebble.example\""],
    },
    Case {
        name: "shop.method.test",
        world: &[
            "shop.method.test CNAME TARGET",
            "method.test CAA 0 issue \"pebble.example; validationmethods=dns-01\"",
        ],
        state: "Needs you",
        code: "CAA_METHOD_MISMATCH",
        words: ["but not by http-01", "Add: method.test CAA 0 issue \"pebble.example; validationmethods="],
    },
    Case {
        name: "shop.below.unread.test",
        world: &["zone below.unread.test", "shop.below.unread.test CNAME TARGET", "! unread.test servfail"],
        state: "Waiting for DNS",
        code: "CAA_LOOKUP_FAILED",
        words: ["The CAA records of unread.test could not be read", "we check again automatically"],
    },
    Case {
        name: "apex.test",
        world: &["apex.test CNAME TARGET"],
        state: "Live",
        code: "DNS_APEX_NEEDS_ALIAS",
        words: ["breaks its other records for many resolvers", "Create an ALIAS (or ANAME) record: apex.test ALIAS"],
    },
];

// rule: 1.12, 1.16, 1.17
#[tokio::test(flavor = "multi_thread")]
async fn the_other_conflicts_of_the_matrix_have_their_texts() {
    let person = Person::signed_in("business").await;
    let browser = &person.browser;
    let (_, target) = &person.platform.records("demo-business", "x.customer.test")[0];
    let world: Vec<String> =
        REST_OF_THE_MATRIX.iter().flat_map(|case| case.world).map(|line| line.replace("TARGET", target)).collect();
    person.platform.world(&world);
    for case in REST_OF_THE_MATRIX {
        add_to(&person, "/projects/demo-business/domains", case.name).await;
        browser.reads(case.state).await;
        browser.reads(&format!("You must act · {}", case.code)).await;
        for words in case.words.iter().chain(&["What to do"]) {
            browser.reads(words).await;
        }
    }

    // DNS is correct, but the authority cannot reach the gateway by the name, and reports this.
    person.platform.dns("*.edge.tollhouse.localhost", "A", "240.0.0.1");
    person.platform.dns("shop.unreachable.test", "CNAME", target);
    add_to(&person, "/projects/demo-business/domains", "shop.unreachable.test").await;
    browser.reads("We must act · EDGE_UNAVAILABLE").await;
    browser.reads("No action is needed: we try again automatically.").await;
    browser
        .reads("Our gateways cannot be reached, so the certificate authority cannot check shop.unreachable.test.")
        .await;
    // The authority's text depends on this machine's network; it names the address.
    let said = "const words = ['240.0.0.1'];
        return [...document.querySelectorAll('.problem dd code')]
            .some((one) => words.every((some) => one.innerText.includes(some)))";
    let names_it = async || browser.run(said).await.as_bool().unwrap();
    browser.until("the authority's message names the address", names_it).await;
    browser.reads("Waiting").await;
    person.inspect("domain-unreachable").await;
}

// rule: 1.14
#[tokio::test(flavor = "multi_thread")]
async fn nameservers_that_disagree_are_shown_one_by_one_until_all_are_right() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    let (_, target) = &person.platform.records("demo-pro", "shop.spreading.test")[0];
    person.platform.world(&[
        format!("shop.spreading.test CNAME {target} @1"),
        "shop.spreading.test CNAME old-host.example.net @2".to_owned(),
    ]);
    add(&person, "shop.spreading.test").await;
    browser.reads("Propagating").await;
    browser.reads("1 of 3 of your nameservers answer correctly already").await;
    let servers =
        "return [...document.querySelectorAll('#live table:not(.records) tbody tr')].map((row) => row.innerText)";
    let rows = browser.run(servers).await;
    for (row, words) in rows.as_array().unwrap().iter().zip([
        ["ns1.spreading.test", "Right"],
        ["ns2.spreading.test", "CNAME points elsewhere"],
        ["ns3.spreading.test", "No record yet"],
    ]) {
        assert!(words.iter().all(|word| row.as_str().unwrap().contains(word)), "{words:?}: {rows:#?}");
    }
    browser.reads("old-host.example.net").await;
    browser.reads("ns2.spreading.test: CNAME old-host.example.net").await;
    browser.reads("Time must pass · DNS_PARTIAL").await;
    person.inspect("domain-partial").await;

    // The other nameservers follow, and the page updates without input.
    person.platform.dns("shop.spreading.test", "CNAME", target);
    look_again(&person, "shop.spreading.test").await;
    browser.reads("Visitors reach your project here").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_another_project_moves_after_its_new_owners_proof() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    let name = "shop.contested.test";
    let (_, theirs) = &person.platform.records("demo-business", name)[0];
    person.platform.dns(name, "CNAME", theirs);
    person.platform.json(&["domain", "add", "demo-business", name]);
    browser
        .until("the other project serves the name", async || {
            person.platform.json(&["domain", "show", "demo-business", name])["status"] == "active"
        })
        .await;

    // Before it is added, the page shows the required proof.
    person.go(&format!("{DOMAINS}/new")).await;
    browser.fill("#name", name).await;
    browser.reads("Another project has this name, or had it.").await;
    browser.reads("edge-verify=").await;
    let copied =
        browser.run("return [...document.querySelectorAll('#check [data-copy]')].map((one) => one.dataset.copy)").await;
    let records: Vec<&str> = copied.as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect();
    let [_, ours, _, proof] = records[..] else { panic!("a CNAME and a TXT record: {records:?}") };
    browser.click("button[formmethod=post]").await;

    // First the record points here without the proof; then the TXT record belongs to another project.
    person.platform.dns(name, "CNAME", ours);
    look_again(&person, name).await;
    browser.reads("Waiting for proof").await;
    browser.reads("You must act · OWNERSHIP_TXT_MISSING").await;
    browser.reads("Prove that it is yours").await;
    browser.reads(proof).await;
    person.inspect("domain-contested").await;
    person.platform.dns(&format!("_edge-verify.{name}"), "TXT", "edge-verify=of-another-project");
    look_again(&person, name).await;
    browser.reads("You must act · OWNERSHIP_TXT_MISMATCH").await;
    browser.reads("edge-verify=of-another-project").await;

    person.platform.dns(&format!("_edge-verify.{name}"), "TXT", proof);
    look_again(&person, name).await;
    browser.reads("Visitors reach your project here").await;
    let lost = person.platform.json(&["domain", "show", "demo-business", name]);
    let is_served = ["active", "degraded"].iter().any(|status| lost["status"] == *status);
    assert!(!is_served && lost["certificate"]["status"] == "none", "there is one owner at a time: {lost}");
}
