//! Many resumes of one session at once, and their winners killed: never two in it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::claude::Claude;
use crate::support::env::PATIENCE;
use crate::support::lanes::on_each_claude;
use crate::support::process::{Running, until};
use crate::support::scenario::{Reply, Scenario};
use crate::support::sleeping::Sleeping;

/// How many at once.
const CALLERS: usize = 20;

/// The claude processes that have the session, as the kernel shows them: by what they execute and
/// by their arguments. A child between fork and exec is none yet.
fn claudes(executable: &std::path::Path, session: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if fs::read_link(entry.path().join("exe")).ok().as_deref() != Some(executable) {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if line.contains(&format!("--resume={session}")) && !stat.contains(") Z ") {
            found.push(pid);
        }
    }
    found
}

/// A claude's own children look like it until they have become what they are to be.
fn without_forks(pids: Vec<i32>) -> Vec<i32> {
    let parent = |pid: &i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let all = pids.clone();
    let own = |pid: &i32| parent(pid).is_some_and(|parent| all.contains(&parent));
    pids.into_iter().filter(|pid| !own(pid)).collect()
}

/// Looks from outside, all the time, how many have the session at once.
struct Watcher {
    stop: AtomicBool,
    seen: Mutex<(usize, Vec<Vec<i32>>)>,
}

impl Watcher {
    fn watch(&self, executable: &std::path::Path, session: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            let now = without_forks(claudes(executable, session));
            let mut seen = self.seen.lock().unwrap();
            seen.0 += usize::from(!now.is_empty());
            if now.len() > 1 {
                seen.1.push(now);
            }
            drop(seen);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A few random bits, by which a winner is killed or spared.
fn coin() -> bool {
    uuid::Uuid::new_v4().as_bytes()[0].is_multiple_of(2)
}

/// Kills the supervisor or the claude of whoever has the session, or neither.
fn strike(slept: &Sleeping, executable: &std::path::Path) -> Option<&'static str> {
    if !coin() {
        return None;
    }
    let claude = *without_forks(claudes(executable, &slept.session)).first()?;
    let (what, pid) = if coin() {
        ("claude", claude)
    } else {
        let run = fs::read_dir(slept.env.state().join("runs"))
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .max()?;
        let process: Value =
            serde_json::from_slice(&fs::read(run.join("process.json")).ok()?).ok()?;
        let pid = i32::try_from(process["supervisor"]["pid"].as_i64()?).ok()?;
        ("supervisor", pid)
    };
    // All that is found so was started here. It may be gone by now.
    let own = slept.env.alive().contains(&pid);
    (own && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()).then_some(what)
}

fn race(slept: &Sleeping, args: &[&str], strikes: usize) {
    let executable = fs::canonicalize(slept.env.wired().claude().path()).unwrap();
    let watcher = Watcher {
        stop: AtomicBool::new(false),
        seen: Mutex::default(),
    };
    let mut classes: BTreeMap<String, usize> = BTreeMap::new();
    let session = slept.session.as_str();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watcher.watch(&executable, session));
        let mut callers: Vec<Running> = (0..CALLERS).map(|_| slept.resuming(args)).collect();
        let mut struck = 0;
        until(PATIENCE * 2, "the end of every caller", || {
            let all = callers.iter_mut().all(Running::has_ended);
            if !all && struck < strikes {
                struck += usize::from(strike(slept, &executable).is_some());
            }
            all
        });
        for caller in callers {
            let done = caller.wait(PATIENCE);
            let class = match done.signal {
                // Its own end was a kill: what it began is judged from its folder.
                Some(9) => "killed".to_owned(),
                _ => done.json()["class"].as_str().unwrap().to_owned(),
            };
            *classes.entry(class).or_default() += 1;
        }
        // A claude whose supervisor was killed ends its turn by itself.
        until(PATIENCE, "the last claude's end", || {
            claudes(&executable, &slept.session).is_empty()
        });
        watcher.stop.store(true, Ordering::Relaxed);
        watching.join().unwrap();
    });
    let (alive, doubles) = watcher.seen.into_inner().unwrap();
    assert!(alive > 0, "the watcher saw nobody: {classes:?}");
    assert!(doubles.is_empty(), "two at once: {doubles:?}, {classes:?}");
    let known = ["delivered-resume", "held-by-session", "error", "killed"];
    assert!(
        classes.keys().all(|class| known.contains(&class.as_str())),
        "{classes:?}"
    );
    // Every run that was begun has a class in the end, and nobody holds a lock.
    let runs = slept.env.oo(["runs", "--json", "--all"]).run().json();
    for run in runs["runs"].as_array().unwrap() {
        assert_eq!(run["state"], "ended", "{run:#}");
        assert!(run["class"].is_string(), "{run:#}");
    }
    assert_eq!(runs["broken"], serde_json::json!([]));
    let lock = slept
        .env
        .state()
        .join(format!("locks/{}.lock", slept.session));
    let lock = fs::File::open(lock).unwrap();
    lock.try_lock().expect("no lock is left held");
}

on_each_claude!(of_twenty_one_gets_its_turn, |claude| {
    let slept = Sleeping::new(&claude);
    let replies = (0..CALLERS).map(|_| Reply::text("done").after(Duration::from_millis(200)));
    slept.env.script(&Scenario::new(replies));
    race(&slept, &[], 0);
    let runs = slept.env.oo(["runs", "--json", "--all"]).run().json();
    let resumed = runs["runs"].as_array().unwrap().iter();
    let classes: Vec<&str> = resumed
        .filter(|run| run["verb"] == "resume")
        .map(|run| run["class"].as_str().unwrap())
        .collect();
    // Whoever came when the first had left had a turn as well, and a whole one.
    assert!(!classes.is_empty());
    assert!(
        classes.iter().all(|class| *class == "delivered-resume"),
        "{classes:?}"
    );
});

on_each_claude!(the_winners_are_killed, |claude| {
    let slept = Sleeping::new(&claude);
    let wait = if claude == Claude::Fake {
        "--wait=1m"
    } else {
        "--wait=5s"
    };
    let replies = (0..CALLERS * 2).map(|_| Reply::text("done").after(Duration::from_millis(100)));
    slept.env.script(&Scenario::new(replies));
    race(&slept, &[wait], 6);
});
