//! When something is wrong: what a person sees for each conflict, and that it goes away when it is solved.

use crate::person::Person;

const DOMAINS: &str = "/projects/demo-pro/domains";

async fn add(person: &Person, name: &str) {
    person.go(&format!("{DOMAINS}/new")).await;
    person.browser.fill("#name", name).await;
    person.browser.click("button[formmethod=post]").await;
}

// rule: 1.16, 1.17
#[tokio::test(flavor = "multi_thread")]
async fn each_conflict_says_who_must_act_what_is_there_and_what_to_do() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    let target =
        person.platform.json(&["domain", "check", "demo-pro", "x.customer.test"])["records"][0]["value"].clone();
    let target = target.as_str().unwrap();
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
        for words in ["What stands in the way", observed, "What to do"] {
            browser.reads(words).await;
        }
    }
    person.go(&format!("{DOMAINS}/a.customer.test")).await;
    person.inspect("domain-conflict").await;
    person.go(DOMAINS).await;
    person.inspect("domains-conflicts").await;

    // A name that nobody registered is told before it is added.
    person.go(&format!("{DOMAINS}/new")).await;
    browser.fill("#name", "co.uk").await;
    browser.reads("public_suffix").await;
}
