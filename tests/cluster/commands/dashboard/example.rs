//! The page with a shop's elections, which do not differ from run to run: what it draws, sorts and says. The pictures of
//! the documentation come from here: `LICTOR_BLESS=1` writes them.

use lictor_testing::Browser;
use lictor_testing::kubernetes::Lab;
use serde_json::json;

use super::{Dashboard, ENTER, inspect, tab_to};

/// The elections that the page is told of, in the place of those of a cluster.
const EXAMPLE: &str = include_str!("example.js");
/// The largest picture in the documentation, in bytes.
const LARGEST: u64 = 150_000;

/// Opens a place on the page, with the example.
async fn opened(test: &str, place: &str) -> (Dashboard, Browser) {
    let lab = Lab::new(test).await;
    let (dashboard, browser) = (Dashboard::of(&lab), Browser::start().await);
    browser.open(&dashboard.address).await;
    browser.shows("h1", "Elections").await;
    browser.run(EXAMPLE, vec![json!(place)]).await;
    (dashboard, browser)
}

/// Waits until the list has these elections, in this order.
async fn lists(browser: &Browser, names: &[&str]) {
    lictor_testing::eventually("the elections are listed", || async {
        let shown = browser.texts(".elections tbody th a").await;
        if shown == names { Ok(()) } else { Err(format!("{shown:?}, not {names:?}")) }
    })
    .await;
}

/// Chooses an option, as a person does.
async fn choose(browser: &Browser, field: &str, value: &str) {
    let script = "const field = document.querySelector(arguments[0]); field.value = arguments[1]; \
        for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {bubbles: true}))";
    browser.run(script, vec![json!(field), json!(value)]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a browser"]
async fn the_list_is_searched_sorted_and_narrowed_to_a_namespace() {
    const ALL: [&str; 7] =
        ["invoice-mailer", "month-end", "ledger-writer", "checkout", "price-importer", "stock-sync", "indexer"];
    let (_dashboard, browser) = opened("dash-sort", "#/").await;
    lists(&browser, &ALL).await;
    // By the keyboard, there and back.
    tab_to(&browser, "Handovers, 24 h").await;
    browser.keys(ENTER).await;
    lists(
        &browser,
        &["checkout", "indexer", "price-importer", "invoice-mailer", "month-end", "ledger-writer", "stock-sync"],
    )
    .await;
    browser.shows("[aria-sort=descending]", "Handovers").await;
    browser.keys(ENTER).await;
    lists(
        &browser,
        &["month-end", "ledger-writer", "stock-sync", "invoice-mailer", "price-importer", "indexer", "checkout"],
    )
    .await;
    browser.shows("[aria-sort=ascending]", "Handovers").await;
    choose(&browser, "select[name=namespace]", "shop").await;
    lists(&browser, &["stock-sync", "price-importer", "checkout"]).await;
    choose(&browser, "input[type=search]", "stock").await;
    lists(&browser, &["stock-sync"]).await;
    choose(&browser, "input[type=search]", "").await;
    choose(&browser, "select[name=namespace]", "").await;
    browser.click(".elections thead th:nth-child(2) button").await;
    lists(&browser, &ALL).await;
    // The sparklines count in words, too.
    let said = browser.texts(".spark").await.join(" ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("9 known in 24 h"), "{said}");
    inspect(&browser, "sorted").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a browser"]
async fn an_election_is_drawn_by_zone_and_over_time() {
    let (_dashboard, browser) = opened("dash-drawn", "#/shop/checkout").await;
    browser.shows(".picture .source", "checkout-leader").await;
    assert_eq!(
        browser.texts(".zone h3").await,
        ["eu-west-1a", "eu-west-1b", "eu-west-1c"].map(|zone| format!("Zone {zone}"))
    );
    // The way leads from the Service to the leader, and moves with it.
    let ends = "const path = document.querySelector('.route path'), at = path.getPointAtLength(path.getTotalLength() / 2), \
        end = /V([\\d.]+)H/.exec(path.getAttribute('d'))[1], ground = document.querySelector('.picture').getBoundingClientRect(), \
        card = document.querySelector('.pod.leads').getBoundingClientRect(); \
        return end > card.top - ground.top && end < card.bottom - ground.top && at.x > 0";
    assert_eq!(browser.run(ends, vec![]).await, json!(true));
    let lead =
        "const one = window.example.one.election; one.leader = one.outlook.leader.name = arguments[0]; window.send()";
    for (leader, way) in [(json!(null), "cut"), (json!("checkout-7d9f-k2xvq"), "")] {
        browser.run(lead, vec![leader]).await;
        lictor_testing::eventually("the way is drawn", || async {
            let class = browser.run("return document.querySelector('.route path').className.baseVal", vec![]).await;
            if class == json!(way) { Ok(()) } else { Err(class.to_string()) }
        })
        .await;
    }
    let marked = browser.texts(".pod.leads .title").await.join(", ");
    assert_eq!(marked.split_whitespace().collect::<Vec<_>>(), ["checkout-7d9f-k2xvq", "leader"]);
    assert_eq!(browser.run(ends, vec![]).await, json!(true));

    // Of a day, five hours are not known; of an hour, all is.
    browser.shows(".unknown-said", "it is not known which pod led").await;
    browser.shows(".tiles", "at least: earlier ones are not known").await;
    let unknown = async || browser.run("return document.querySelectorAll('.bar.unknown').length", vec![]).await;
    assert_eq!(unknown().await, json!(5), "in each lane");
    let label = browser.run("return document.querySelector('.lanes').getAttribute('aria-label')", vec![]).await;
    assert!(label.to_string().contains("not known until"), "{label}");
    browser.click(".ranges input[value='1']").await;
    browser.shows(".tiles", "Handovers in 1\u{a0}h").await;
    assert_eq!(unknown().await, json!(0));
    browser.click(".ranges input[value='168']").await;
    browser.shows(".tiles", "Handovers in 7\u{a0}d").await;
    inspect(&browser, "drawn").await;
}

/// Hides what a picture need not show.
async fn hide(browser: &Browser, what: &str) {
    let script = "for (const one of document.querySelectorAll(arguments[0])) one.style.display = 'none'";
    browser.run(script, vec![json!(what)]).await;
}

/// The pictures of the documentation are small.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a browser"]
async fn the_pictures_of_the_documentation_are_made_from_the_page() {
    for (name, place, width, dark, hidden) in [
        ("dashboard-list", "#/", 1000, false, "dialog"),
        ("dashboard", "#/shop/checkout", 1000, false, ".past, details"),
        ("dashboard-dark", "#/shop/checkout", 1000, true, ".cards, .past, details"),
        ("dashboard-phone", "#/shop/checkout", 360, false, ".cards, .past, details"),
    ] {
        let (_dashboard, browser) = opened(name, place).await;
        browser.look(width, 400, dark).await;
        browser.shows("main", "checkout").await;
        hide(&browser, hidden).await;
        let folder = if std::env::var_os("LICTOR_BLESS").is_some() { "docs/pictures" } else { "target/dashboard" };
        let file = lictor_testing::file(&format!("{folder}/{name}.png"));
        browser.picture(&file).await;
        let size = std::fs::metadata(&file).expect("it is written").len();
        assert!(size < LARGEST, "{name}: {size} bytes");
    }
}
