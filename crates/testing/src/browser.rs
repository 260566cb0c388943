//! A real browser: Chromium without a window, driven by WebDriver.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::tool;
use crate::wait::eventually;

/// The key under which WebDriver returns elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page. Dropping this ends it.
pub struct Browser {
    driver: Child,
    directory: PathBuf,
    http: reqwest::Client,
    /// The address of the session.
    session: String,
}

impl Browser {
    /// Starts the browser. The browser resolves no names, so a page that loads anything from elsewhere fails.
    pub async fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let root = tool("browser");
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("lictor-test-browser-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        // The browser's profile is in this directory.
        let mut driver = Command::new(root.join("chromedriver"))
            .arg("--port=0")
            .env("TMPDIR", &directory)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok());
        let port = port.expect("chromedriver says its port");
        let options = json!({
            "binary": root.join("usr/lib/chromium/chromium-headless-shell"),
            "args": [
                "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        });
        let capabilities = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made");
        let mut browser = Self { driver, directory, http, session: format!("http://127.0.0.1:{port}/session") };
        let made = browser.ask("", &json!({"capabilities": {"alwaysMatch": capabilities}})).await;
        let id = made.expect("a browser starts")["sessionId"].as_str().expect("a session has an id").to_owned();
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    /// Sends a WebDriver command. The error is the driver's message.
    async fn ask(&self, path: &str, body: &Value) -> Result<Value, String> {
        let request = self.http.post(format!("{}{path}", self.session)).body(body.to_string());
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let done = answer.status().is_success();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        let mut told: Value = serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))?;
        if done { Ok(told["value"].take()) } else { Err(told["value"]["message"].to_string()) }
    }

    /// Opens an address.
    pub async fn open(&self, address: &str) {
        self.ask("/url", &json!({"url": address})).await.expect("the address can be opened");
    }

    /// Sets the size of the page, and whether the reader's system uses a dark theme.
    pub async fn look(&self, width: u32, height: u32, dark: bool) {
        let phone = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let done = self.ask("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await;
        done.expect("Chromium does it")
    }

    /// Runs a script in the page, and returns what it returns.
    pub async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.ask("/execute/sync", &json!({"script": script, "args": arguments}))
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a script in the page, and returns the value that the script passes to the function in its last argument.
    pub async fn run_async(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.ask("/execute/async", &json!({"script": script, "args": arguments}))
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the visible text of the first match of a CSS selector; `None` if nothing matches.
    pub async fn text(&self, selector: &str) -> Option<String> {
        let text =
            self.run("return document.querySelector(arguments[0])?.innerText ?? null", vec![json!(selector)]).await;
        text.as_str().map(str::to_owned)
    }

    /// Returns the visible texts of all matches of a selector.
    pub async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText)";
        let texts = self.run(script, vec![json!(selector)]).await;
        texts.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Waits until the text of a selector's first match contains this.
    pub async fn shows(&self, selector: &str, text: &str) {
        eventually(&format!("{selector} shows {text:?}"), || async {
            match self.text(selector).await {
                Some(shown) if shown.contains(text) => Ok(()),
                shown => Err(format!("{shown:?} in {:?}", self.text("body").await)),
            }
        })
        .await;
    }

    /// Waits for a match of a selector, and clicks on the first.
    pub async fn click(&self, selector: &str) {
        eventually(&format!("a click on {selector}"), || async {
            let found = self.ask("/element", &json!({"using": "css selector", "value": selector})).await?;
            let element = found[ELEMENT].as_str().expect("an element has an id").to_owned();
            self.ask(&format!("/element/{element}/click"), &json!({})).await
        })
        .await;
    }

    /// Types keys into the focused element.
    pub async fn keys(&self, keys: &str) {
        let keys = keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|type_| json!({"type": type_, "value": key})));
        let actions = json!([{"type": "key", "id": "keys", "actions": keys.collect::<Vec<_>>()}]);
        self.ask("/actions", &json!({"actions": actions})).await.expect("keys can be pressed");
    }

    /// Returns the visible text of the focused element.
    pub async fn focus(&self) -> String {
        self.run("return document.activeElement.innerText ?? ''", vec![]).await.as_str().unwrap_or_default().to_owned()
    }

    /// Writes a picture of the page, as high as the page is.
    pub async fn picture(&self, file: &Path) {
        let height = self.run("return document.documentElement.scrollHeight", vec![]).await;
        let clip = json!({
            "x": 0, "y": 0, "scale": 1, "height": height, "width": self.run("return innerWidth", vec![]).await,
        });
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.devtools("Page.captureScreenshot", parameters).await;
        let taken = taken["data"].as_str().expect("a picture is text");
        std::fs::create_dir_all(file.parent().expect("it is in a directory")).expect("it can be made");
        let taken = base64::prelude::BASE64_STANDARD.decode(taken).expect("it is base64");
        std::fs::write(file, taken).expect("it can be written");
    }

    /// Returns the barriers for readers with a disability that axe-core finds, a line for each rule.
    pub async fn barriers(&self) -> Vec<String> {
        let axe = std::fs::read_to_string(tool("page-modules").join("axe-core/axe.min.js")).expect("axe-core is there");
        self.run(&axe, vec![]).await;
        let script = "const done = arguments[arguments.length - 1]; axe.run(document).then(found => done(found.violations), error => done([{id: String(error), nodes: []}]))";
        let found = self.run_async(script, vec![]).await;
        let line = |rule: &Value| {
            let nodes: Vec<_> =
                rule["nodes"].as_array().into_iter().flatten().map(|node| node["html"].to_string()).collect();
            format!("{}: {}: {}", rule["id"], rule["help"], nodes.join(" "))
        };
        found.as_array().expect("a list").iter().map(line).collect()
    }

    /// Returns the browser's complaints since the last call: errors of scripts, files that can't be loaded, refused contents.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.ask("/se/log", &json!({"type": "browser"})).await.expect("there is a log");
        log.as_array().expect("a list").iter().map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The whole group is killed, because ChromeDriver would leave the browser behind.
        let _ = Command::new("kill").args(["-KILL", "--"]).arg(format!("-{}", self.driver.id())).status();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
