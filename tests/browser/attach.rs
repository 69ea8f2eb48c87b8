//! The specification's procedure in a browser: from signing in to a live domain, and its removal.

use crate::driver::Driver;
use crate::person::Person;

const DOMAINS: &str = "/projects/demo-pro/domains";

/// Adds a domain that means this machine, and waits until it is live.
async fn add_local(person: &Person, name: &str) {
    person.go(&format!("{DOMAINS}/new")).await;
    person.browser.fill("#name", name).await;
    person.browser.click("button[formmethod=post]").await;
    is_live(&person.browser).await;
}

async fn is_live(browser: &Driver) {
    browser.reads("Visitors reach your project here").await;
}

// rule: 1.8, 1.10, 1.12, 1.13, 1.15, 1.19
#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_attaches_a_domain_without_reading_a_manual() {
    let person = Person::start().await;
    let browser = &person.browser;
    person.inspect("sign-in").await;
    browser.fill("#key", "th_live_mistyped").await;
    browser.click("form[action='/sign-in'] button").await;
    browser.reads("This is not a key").await;
    browser.complaints().await; // the console notes the 400
    browser.fill("#key", &person.platform.key("pro")).await;
    browser.press(&["\u{e007}"]).await; // Enter
    browser.reads("Served at").await;
    assert_eq!(browser.path().await, DOMAINS);
    person.inspect("domains").await;

    // Add: the page shows the requirements while the name is typed.
    browser.click("a.button.main").await;
    browser.reads("Enter the domain or subdomain").await;
    browser.fill("#name", "shop.customer.test").await;
    browser.reads("This is a subdomain: it needs one CNAME record.").await;
    let value = browser.run("return document.querySelectorAll('#check [data-copy]')[1].dataset.copy").await;
    let value = value.as_str().unwrap().to_owned();
    assert!(value.contains(".edge."), "{value}");
    person.inspect("domain-add").await;
    browser.click("button[formmethod=post]").await;
    browser.reads("Waiting for DNS").await;
    browser.reads("You must act").await;
    person.inspect("domain-pending").await;

    // Create the record from the page; press Verify.
    person.platform.dns("shop.customer.test", "CNAME", &value);
    browser.click("#verify").await;
    // From here on the page updates without input.
    is_live(browser).await;
    browser.reads("Certificate issued").await;
    browser.complaints().await; // Verify may have come within ten seconds of the check before
    person.go(&format!("{DOMAINS}/shop.customer.test")).await;
    browser.reads("Deployed").await;
    person.inspect("domain-live").await;
    let (visitor, address) = person.platform.visitor("shop.customer.test");
    let orders = format!("{address}/v1/store/orders");
    let visit = || visitor.get(&orders).bearer_auth(person.platform.key("pro")).send();
    assert_eq!(visit().await.unwrap().status(), 200, "the new domain serves the project");

    // Remove: the gateway confirms it, and the name is no longer served.
    browser.click("a.danger").await;
    browser.reads("Traffic stops at once").await;
    person.inspect("domain-remove").await;
    browser.click("button.danger").await;
    browser.reads("Traffic stopped on the only gateway").await;
    person.browser.complaints().await;
    assert!(visit().await.is_err(), "the TLS handshake for the name fails");
    browser.click("main a.button").await;
    browser.reads("www.petshop.localhost").await;
    assert!(!browser.text().await.contains("shop.customer.test"));
}

// rule: 1.14, 1.15
#[tokio::test(flavor = "multi_thread")]
async fn a_second_domain_redirects_to_the_primary_one() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    add_local(&person, "old.localhost").await;
    browser.run("document.querySelector('select[name=to]').value = 'primary'").await;
    browser.run("document.querySelector('select[name=status]').value = '308'").await;
    browser.click("form.redirect button").await;
    browser.reads("Redirects to the primary domain (308)").await;
    person.inspect("domain-redirect").await;
    let (visitor, address) = person.platform.visitor("old.localhost");
    let answer = visitor.get(format!("{address}/cart?x=1")).send().await.unwrap();
    let location = answer.headers()["location"].to_str().unwrap();
    assert_eq!(answer.status(), 308);
    assert!(location.starts_with("https://www.petshop.localhost") && location.ends_with("/cart?x=1"), "{location}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_control_is_reachable_by_keyboard_with_a_visible_focus() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    browser.press(&["\u{e004}"]).await; // Tab
    let skip = "return [document.activeElement.className, document.activeElement.getBoundingClientRect().top >= 0]";
    browser.until("the skip link is seen", async || browser.run(skip).await == serde_json::json!(["skip", true])).await;
    browser.press(&["\u{e007}"]).await;
    assert_eq!(browser.run("return document.activeElement.id").await, "main");
    let reachable = "return [...document.querySelectorAll('a[href], button, input, select, summary')]
        .filter((one) => one.checkVisibility() && one.tabIndex < 0).map((one) => one.outerHTML)";
    assert_eq!(browser.run(reachable).await, serde_json::json!([]), "nothing is out of the keyboard's reach");
    browser.press(&["\u{e004}"]).await;
    let outline = browser.run("return getComputedStyle(document.activeElement).outlineWidth").await;
    assert_eq!(outline, "3px", "where the focus is can be seen");
}
