//! `watch`: what it prints of handovers, on a terminal and elsewhere.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use lictor_testing::Link;
use lictor_testing::kubernetes::{Lab, User};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Live, group, plugin, run};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_each_change_is_a_line_with_the_gap_of_a_handover() {
    let lab = Lab::new("cmd-lines").await;
    let _operator = group(&lab).await;
    let mut watch = Live::start(plugin(&lab, lab.cluster.kubeconfig(), &["watch"]));
    let name = format!(" {}/web ", lab.namespace);
    watch.shows_all(&[&name, "web-1 leads in term 1: Led"]).await;
    lab.kill_pod("web-1").await;
    watch.shows_all(&[&name, "web-1 has lost the leader's label"]).await;
    let line = watch.shows_all(&[&name, "web-0 leads instead of web-1 in term 2, gap "]).await;
    let gap = line.rsplit_once("gap ").and_then(|(_, gap)| gap.strip_suffix(" ms")?.parse::<u64>().ok());
    assert!(gap.is_some_and(|gap| gap < 10_000), "{line}");
    lab.patch_pod("web-0", serde_json::json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    watch.shows_all(&[&name, "NoEligiblePod: "]).await;
    lab.delete_election("web").await;
    watch.shows_all(&[&name, "the election was deleted"]).await;
    assert_eq!(watch.interrupt(), Some(130));
    assert!(watch.seen.iter().all(|line| !line.contains('\u{1b}')), "{:?}", watch.seen);
    // One that can't be watched is no reason to wait.
    let missing = run(&lab, &["watch", "web"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no LeaderElection web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_told_and_no_gap_is_made_up_for_it() {
    let lab = Lab::new("cmd-lost").await;
    let _operator = group(&lab).await;
    let config = std::fs::read_to_string(lab.cluster.kubeconfig()).expect("it can be read");
    let server = config.lines().find_map(|line| line.trim().strip_prefix("server: ")).expect("a server");
    let server = server.trim_matches('"').rsplit_once('/').expect("an address").1;
    let link = Link::to(server);
    let kubeconfig = std::env::temp_dir().join(format!("lictor-test-link-{}", lab.namespace));
    std::fs::write(&kubeconfig, config.replace(server, link.address())).expect("it can be written");
    let mut watch = Live::start(plugin(&lab, &kubeconfig, &["watch", "web"]));
    let mut status = Live::start(plugin(&lab, &kubeconfig, &["status", "web", "--watch"]));
    watch.shows("web-1 leads in term 1: Led").await;
    status.shows("web-1   leader").await;
    link.disable().await;
    watch.shows("what is shown may be over: ").await;
    status.shows("what is shown may be over: ").await;
    lab.kill_pod("web-1").await;
    lab.wait_leader("web-0").await;
    link.enable().await;
    watch.shows("the API server answers again").await;
    watch.shows("web-0 leads instead of web-1 in term 2, gap not seen from here").await;
    status.shows("web-0   leader").await;
    assert_eq!((watch.interrupt(), status.interrupt()), (Some(130), Some(130)));
    std::fs::remove_file(&kubeconfig).expect("it can be removed");
}

/// Who may read elections and no pods sees the leaders of the statuses.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_read_pods_the_statuses_tell_the_leaders() {
    let lab = Lab::new("cmd-blind").await;
    let _operator = group(&lab).await;
    let user = User::new(&lab).await;
    user.may(|verb, resource| verb != "patch" && resource == "leaderelections").await;
    let mut watch = Live::start(plugin(&lab, user.kubeconfig(), &["watch"]));
    watch.shows("no gap is seen, and the statuses tell the leaders: not allowed to list pods").await;
    watch.shows("web-1 leads: Led").await;
    lab.kill_pod("web-1").await;
    watch.shows("web-0 leads instead of web-1, gap not seen from here").await;
    assert_eq!(watch.interrupt(), Some(130));
}

/// Starts a command on a terminal of this size.
fn on_terminal(mut command: std::process::Command, columns: u16) -> Live {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be opened");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it can be used");
    let size = Winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("its size can be set");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let path = std::ffi::OsStr::from_bytes(name.to_bytes());
    let inner = OpenOptions::new().read(true).write(true).open(path).expect("it can be opened");
    let copy = |file: &File| Stdio::from(file.try_clone().expect("it can be copied"));
    let child = command.stdin(copy(&inner)).stdout(copy(&inner)).stderr(copy(&inner)).env("TERM", "xterm-256color");
    let child = child.spawn().expect("lictor starts");
    Live::of(child, vec![Box::new(File::from(terminal)) as Box<dyn Read + Send>])
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_a_table_is_updated_in_place_and_nothing_stays_behind() {
    const ENTERS: [&str; 3] = ["\u{1b}[?1049h", "\u{1b}[?25l", "\u{1b}[?7l"];
    const LEAVES: [&str; 3] = ["\u{1b}[?1049l", "\u{1b}[?25h", "\u{1b}[?7h"];
    let lab = Lab::new("cmd-screen").await;
    let _operator = group(&lab).await;
    let command = plugin(&lab, lab.cluster.kubeconfig(), &["watch", "web"]);
    let mut plain = plugin(&lab, lab.cluster.kubeconfig(), &["watch", "web"]);
    plain.env("NO_COLOR", "1");
    let (mut watch, mut plain) = (on_terminal(command, 60), on_terminal(plain, 60));
    for shown in [&mut watch, &mut plain] {
        shown.shows_all(&["web ", "Led", "web-1    web-1"]).await;
    }
    lab.kill_pod("web-1").await;
    for shown in [&mut watch, &mut plain] {
        shown.shows_all(&["web-0 leads instead of web-1 in term 2, gap "]).await;
        assert_eq!(shown.interrupt(), Some(130));
        let all = shown.seen.join("\n");
        let (_, after) = all.split_once(ENTERS[0]).expect("it has a screen of its own");
        let (inside, outside) = after.split_once(LEAVES[0]).expect("it leaves that screen");
        assert!(ENTERS[1..].iter().all(|one| inside.contains(one)), "{all:?}");
        assert!(LEAVES[1..].iter().all(|one| inside.contains(one)), "{all:?}");
        assert_eq!(outside.trim(), "", "{all:?}");
        assert!(!inside.contains("\u{1b}[2J"), "it does not flicker: {all:?}");
    }
    let coloured = |live: &Live| live.seen.iter().any(|line| line.contains("\u{1b}[32mLed\u{1b}[0m"));
    assert!(coloured(&watch) && !coloured(&plain));
    assert!(!plain.seen.iter().any(|line| line.contains("\u{1b}[0m")), "{:?}", plain.seen);
}
