//! Many elections on real servers, with random faults of real processes and links. What etcd and Consul show is recorded, and
//! judged from that record alone. `make torture MINUTES=60 SEED=17` runs it. With `LICTOR_TORTURE_RECORD=…/record.jsonl`, nothing
//! runs, and an existing record is judged again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test is as long as its story")]

mod candidates;
mod checker;
mod faults;
mod inject;
mod operator;
mod picture;
mod record;
mod recorder;
mod report;
mod windows;
mod world;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::{AbortHandle, JoinSet};

use self::checker::Verdict;
use self::faults::Plan;
use self::record::What;
use self::recorder::{Book, watch_consul, watch_etcd, watch_sessions};
use self::report::Report;
use self::world::World;

/// How long faults begin, before a calm.
const STORM: Duration = Duration::from_secs(30);
/// The shortest calm, after which each cluster counts as served.
const CALM: Duration = Duration::from_millis(windows::SERVED_AFTER + 1_000);
/// The longest calm. Every group must have a leader long before, or the checker reports it.
const PATIENCE: Duration = Duration::from_secs(150);

fn setting<T: FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken_whatever_fails() {
    let minutes: f64 = setting("LICTOR_TORTURE_MINUTES", 3.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
    let seed = setting("LICTOR_TORTURE_SEED", now % 100_000);
    let temporary = std::env::temp_dir().join(format!("lictor-torture-{}", std::process::id()));
    let kept = std::env::var_os("LICTOR_TORTURE_DIR").map(PathBuf::from);
    let directory = kept.clone().unwrap_or_else(|| temporary.clone());
    let report = Report { minutes, seed, directory };
    if let Some(record) = std::env::var_os("LICTOR_TORTURE_RECORD") {
        return report.judges_again(&PathBuf::from(record));
    }
    report.begins();

    std::fs::create_dir_all(&report.directory).expect("a directory can be made");
    let book = Book::create(&report.record());
    let world = Arc::new(World::start(book.clone(), &report.directory).await);
    // However this ends, these tasks end too.
    let mut background = JoinSet::new();
    let recorders = [
        background.spawn(watch_etcd(book.clone(), world.etcd.clone())),
        background.spawn(watch_consul(book.clone(), world.consul)),
        background.spawn(watch_sessions(book.clone(), world.consul)),
    ];
    world.populate().await;
    world.make_groups().await;
    let began = Instant::now();
    background.spawn(world.clone().keep_pods());
    background.spawn(world.clone().hold_locks());
    let carried_out = Arc::new(AtomicUsize::new(0));
    background.spawn(report.clone().progress(world.clone(), carried_out.clone(), began));
    let violations = torment(&world, &report, &carried_out, began, &recorders).await;
    drop(background);
    drop(world);
    let verdict = checker::check(&record::read(&report.record()));
    report.ends(began, &verdict);
    assert_eq!(violations, 0, "the record and the operators' logs: {}", report.directory.display());
    assert_eq!(verdict.lacks(minutes), None, "it ran for {:.1} minutes", began.elapsed().as_secs_f64() / 60.0);
    if kept.is_none() {
        std::fs::remove_dir_all(&report.directory).expect("the directory can be removed");
    }
}

/// Alternates storms and calms until the time is over, and judges the record after each calm. On a slow machine it goes on for up to
/// three times as long, until the record shows enough. Returns the number of violations.
async fn torment(
    world: &Arc<World>,
    report: &Report,
    carried_out: &AtomicUsize,
    began: Instant,
    recorders: &[AbortHandle],
) -> usize {
    let (mut plan, mut verdict) = (Plan::new(report.seed), Verdict::default());
    let planned = Duration::from_secs_f64(report.minutes * 60.0);
    let fits = |time: Duration| began.elapsed() + STORM + CALM < time;
    calm(world).await;
    while fits(planned) || (verdict.lacks(report.minutes).is_some() && fits(planned * 3)) {
        let storm = plan.storm(STORM.as_millis().try_into().expect("a short time"));
        let next = || carried_out.fetch_add(1, Ordering::Relaxed);
        let (started, mut tasks) = (Instant::now(), JoinSet::new());
        world.clone().carry_out(next(), storm.before, started + STORM).await;
        for (at, fault) in storm.faults {
            tokio::time::sleep_until((started + Duration::from_millis(at)).into()).await;
            tasks.spawn(world.clone().carry_out(next(), fault, started + STORM));
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("a fault can be carried out");
        }
        calm(world).await;
        world.move_leaders().await;
        world.catch_up().await;
        for replica in world.replicas.iter().flatten() {
            assert!(!replica.ended(), "an operator has ended by itself: {}", report.directory.display());
        }
        assert_eq!(world.book.failure(), None, "the record may have a gap");
        assert!(!recorders.iter().any(AbortHandle::is_finished), "a recorder has ended");
        verdict = report.judge(&world.book, verdict.violations.len());
    }
    verdict.violations.len()
}

/// Waits until every group has a leader, and each cluster is served.
async fn calm(world: &World) {
    world.book.write(What::Calm { begins: true });
    let began = Instant::now();
    while began.elapsed() < CALM || (!world.unsettled().is_empty() && began.elapsed() < PATIENCE) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.book.write(What::Calm { begins: false });
}
