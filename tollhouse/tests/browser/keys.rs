//! Keys, usage, activity, webhooks, the operator's view.

use crate::person::Person;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_used_seen_in_the_usage_and_revoked() {
    let person = Person::signed_in("pro").await;
    let browser = &person.browser;
    person.go("/projects/demo-pro/keys").await;
    browser.reads("All keys of the project share its limits").await;
    browser.fill("#label", "checkout").await;
    browser.click("input[value='orders:read']").await;
    person.inspect("keys").await;
    browser.click("form.stack button.main").await;
    browser.reads("Copy the key now").await;
    let key = browser.run("return document.getElementById('made-key').textContent").await.as_str().unwrap().to_owned();
    browser.click(".made button.copy").await;
    browser
        .until("the button says so", async || {
            let word = browser.run("return document.querySelector('.made button.copy span').textContent").await;
            word == "Copied" || browser.run("return getSelection().toString()").await == key.as_str()
        })
        .await;
    person.inspect("key-made").await;

    let (visitor, address) = person.platform.visitor("demo-pro.tollhouse.localhost");
    for _ in 0..7 {
        let answer = visitor.get(format!("{address}/v1/store/orders")).bearer_auth(&key).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    browser
        .until("the requests are counted", async || {
            person.go("/projects/demo-pro/usage").await;
            let figure = browser.run("return document.querySelectorAll('.figure')[1].textContent").await;
            figure.as_str().unwrap().starts_with('7')
        })
        .await;
    person.inspect("usage").await;

    person.go("/projects/demo-pro/keys").await;
    browser.click(".rows li:first-child .actions details:last-child summary").await;
    browser.click(".rows li:first-child .actions details:last-child button").await;
    browser.reads("The key is revoked.").await;
    let refused = visitor.get(format!("{address}/v1/store/orders")).bearer_auth(&key).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    person.go("/projects/demo-pro/activity").await;
    browser.reads("API key revoked").await;
    person.inspect("activity").await;

    person.go("/projects/demo-pro/webhooks").await;
    browser.fill("#url", "https://receiver.example.com/hook").await;
    browser.click("form.stack button.main").await;
    browser.reads("Copy the signing secret now").await;
    person.inspect("webhook-made").await;
    person.go("/projects/demo-pro/webhooks").await;
    person.inspect("webhooks").await;

    // Signing out: the pages are closed.
    browser.click(".account summary").await;
    browser.click(".account button").await;
    browser.reads("You are signed out.").await;
    person.go("/projects/demo-pro/keys").await;
    browser.reads("Use an API key of your project").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_project_is_told_what_a_plan_would_bring() {
    let person = Person::signed_in("free").await;
    person.browser.reads("Custom domains come with the Pro plan").await;
    person.inspect("plan-required").await;
    person.browser.click("main a.button.main").await;
    person.browser.reads("Requests per minute").await;
    assert_eq!(person.browser.path().await, "/projects/demo-free/usage");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_opens_a_link_and_sees_the_whole_platform() {
    let person = Person::start().await;
    let browser = &person.browser;
    let link = person.platform.json(&["dashboard-link"])["url"].as_str().unwrap().to_owned();
    browser.go(&link).await;
    browser.reads("signs you in as an operator").await;
    person.inspect("enter").await;
    browser.click("form[action='/enter'] button").await;
    browser.reads("Gateways").await;
    person.inspect("operator").await;
    browser.click("a[href='/operator/projects']").await;
    browser.reads("demo-business").await;
    person.inspect("projects").await;
}
