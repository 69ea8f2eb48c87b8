//! A browser without script: it keeps the cookie, follows no redirect by itself, and sends forms as pages write them.

use chassis::clock::Clock as _;
use contract::token::Claims;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::world::{PLATFORM, Platform};

/// A browser at an address.
pub(crate) struct Browser<'a> {
    platform: &'a Platform,
    client: reqwest::Client,
    pub(crate) address: &'static str,
    pub(crate) cookie: Option<String>,
    /// The cookie with a new secret, which the next page shows once.
    made: Option<String>,
}

/// A page as shown.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn location(&self) -> &str {
        self.headers.get("location").map_or("", |value| value.to_str().unwrap())
    }

    /// The token that the page's forms send back.
    pub(crate) fn csrf(&self) -> &str {
        self.between("name=\"csrf\" value=\"", "\"")
    }

    pub(crate) fn between(&self, before: &str, after: &str) -> &str {
        let (_, rest) = self.text.split_once(before).unwrap_or_else(|| panic!("no {before} in:\n{}", self.text));
        rest.split_once(after).unwrap().0
    }

    /// The words a person reads, without marks.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        let mut inside = false;
        for letter in self.text.chars() {
            match letter {
                '<' => inside = true,
                '>' => {
                    inside = false;
                    words.push(' ');
                }
                letter if !inside => words.push(letter),
                _ => {}
            }
        }
        let words = words.replace("&#39;", "'").replace("&#34;", "\"").replace("&amp;", "&");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    pub(crate) fn says(&self, sentence: &str) {
        assert!(self.words().contains(sentence), "{sentence:?} is not on the page: {}", self.words());
    }
}

impl<'a> Browser<'a> {
    pub(crate) fn new(platform: &'a Platform) -> Self {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { platform, client, address: "192.0.2.1", cookie: None, made: None }
    }

    /// A browser that is signed in with a new key with these scopes.
    pub(crate) async fn signed_in(platform: &'a Platform, project: &str, scopes: &[&str]) -> Self {
        let key = new_key(platform, project, scopes).await;
        let mut browser = Self::new(platform);
        let page = browser.sign_in(&key).await;
        assert_eq!((page.status, page.location()), (303, format!("/projects/{project}/domains").as_str()), "{page:?}");
        browser
    }

    pub(crate) async fn sign_in(&mut self, key: &str) -> Page {
        self.send("POST", "/sign-in", &[("key", key)], &[("origin", &origin())]).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send("GET", path, &[], &[]).await
    }

    /// A form of the page at `from`, sent to `path`.
    pub(crate) async fn post(&mut self, from: &str, path: &str, fields: &[(&str, &str)]) -> Page {
        let csrf = self.get(from).await.csrf().to_owned();
        let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("csrf", csrf.as_str())]).collect();
        self.send("POST", path, &fields, &[("origin", &origin())]).await
    }

    /// The same, and the page that the answer redirects to.
    pub(crate) async fn post_and_follow(&mut self, from: &str, path: &str, fields: &[(&str, &str)]) -> Page {
        let led = self.post(from, path, fields).await;
        assert_eq!(led.status, 303, "{}", led.words());
        self.get(led.location()).await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Page {
        let mut request = self.request(method, path).await;
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if method == "POST" {
            let body: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}={}", chassis::percent::segment(value))).collect();
            request = request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for set in headers.get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap().to_owned();
            let kept = (!pair.split_once('=').unwrap().1.is_empty()).then(|| pair.clone());
            let of = if pair.starts_with("__Host-tollhouse-made=") { &mut self.made } else { &mut self.cookie };
            *of = kept;
        }
        Page { status, headers, text: response.text().await.unwrap() }
    }
}

impl Browser<'_> {
    /// A request as the gateway would forward it.
    pub(crate) async fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let claims = Claims {
            audience: "dashboard".to_owned(),
            caller: None,
            site_project: None,
            issued_at: self.platform.clock.now_seconds(),
        };
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.platform.http));
        let request = self.platform.signed(request, claims, self.address).await;
        let request = request.header("host", format!("dashboard.{PLATFORM}"));
        let cookies: Vec<&str> = self.cookie.iter().chain(&self.made).map(String::as_str).collect();
        if cookies.is_empty() { request } else { request.header("cookie", format!("other=1; {}", cookies.join("; "))) }
    }

    /// Opens a stream of events.
    pub(crate) async fn open(&self, path: &str) -> Events {
        let response = self.request("GET", path).await.send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Events { response, text: String::new() }
    }
}

/// A stream of events.
pub(crate) struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    /// The data of the next event.
    pub(crate) async fn event(&mut self) -> String {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                if let Some(data) = data {
                    return data;
                }
                continue;
            }
            let bytes = self.response.chunk().await.unwrap().expect("the stream goes on");
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }
}

/// The origin of the dashboard's own pages.
pub(crate) fn origin() -> String {
    format!("https://dashboard.{PLATFORM}")
}

pub(crate) async fn new_key(platform: &Platform, project: &str, scopes: &[&str]) -> String {
    let path = format!("/projects/{project}/keys");
    let made = platform.operator("POST", &path, json!({ "label": "laptop", "scopes": scopes })).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.body["key"].as_str().unwrap().to_owned()
}

/// The only key of a project, as the API lists it.
pub(crate) async fn listed_key(platform: &Platform, project: &str) -> Value {
    platform.operator("GET", &format!("/projects/{project}/keys"), Value::Null).await.body["keys"][0].clone()
}
