//! Pages for keys, usage, activity, webhooks, and the operator's page.

use crate::person::Person;

// Both engines report known faults, so their empty reports elsewhere are meaningful.
#[tokio::test(flavor = "multi_thread")]
async fn both_accessibility_engines_report_an_unnamed_field_and_low_contrast() {
    let person = Person::start().await;
    assert_eq!((person.asked_axe().await.len(), person.asked_pa11y().await.len()), (0, 0));
    let spoil = "const [field, words] = [document.createElement('input'), document.createElement('p')];
        words.textContent = 'pale'; words.style.color = '#bbb'; document.getElementById('main').append(field, words)";
    person.browser.run(spoil).await;
    let (axe, pa11y) = (person.asked_axe().await, person.asked_pa11y().await);
    for (rule, found) in [("label", &axe), ("color-contrast", &axe)] {
        assert!(found.iter().any(|one| one["id"] == rule), "{rule}: {found:#?}");
    }
    for rule in ["Guideline1_3.1_3_1.F68", "Guideline1_4.1_4_3.G18.Fail"] {
        assert!(pa11y.iter().any(|one| one["code"].as_str().unwrap().ends_with(rule)), "{rule}: {pa11y:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_created_used_listed_in_the_usage_and_revoked() {
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
        .until("the button shows it", async || {
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

    let newest = "return document.querySelector('.rows li').innerText";
    browser
        .until("the key shows its last use", async || {
            person.go("/projects/demo-pro/keys").await;
            let row = browser.run(newest).await;
            let row = row.as_str().unwrap();
            row.contains("checkout") && row.contains("Used ")
        })
        .await;
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

    // After signing out, the pages require a new sign-in.
    browser.click(".account summary").await;
    browser.click(".account button").await;
    browser.reads("You are signed out.").await;
    person.go("/projects/demo-pro/keys").await;
    browser.reads("Use an API key of your project").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_projects_page_describes_the_paid_plans() {
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
    browser.reads("No banned keys.").await;

    // A banned key; the command on the page lifts the ban.
    let keys = person.platform.json(&["key", "list", "demo-pro"]);
    let id = keys[0]["id"].as_str().unwrap();
    person.platform.json(&["ban", "add", id, "--seconds", "600"]);
    let on_page = async |path: &str, words: &str| {
        let what = format!("{path} says {words:?}");
        browser
            .until(&what, async || {
                person.go(path).await;
                browser.text().await.contains(words)
            })
            .await;
    };
    on_page("/operator", "banned by an operator").await;
    person.inspect("operator").await;
    let command = browser.run("return document.querySelector('.command [data-copy]').dataset.copy").await;
    assert_eq!(command, format!("tollhouse ban lift {id}"));
    browser.click("a.name[href='/projects/demo-pro/keys']").await;
    browser.reads("Banned for a while by the operator of the platform.").await;
    person.inspect("key-banned").await;
    let words: Vec<&str> = command.as_str().unwrap().split(' ').skip(1).collect();
    assert!(person.platform.command(&words).status.success());
    on_page("/operator", "No banned keys.").await;

    browser.click("a[href='/operator/projects']").await;
    browser.reads("demo-business").await;
    person.inspect("projects").await;
}
