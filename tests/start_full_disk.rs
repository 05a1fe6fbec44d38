//! A disk that is full, at every moment of a run: nothing half-written, nothing claimed.

use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::TestEnv;
use crate::support::lanes::{Lane, goes_on};
use crate::support::process::Finished;
use crate::support::scenario::Scenario;

/// Runs oo with a state folder that holds `pages` memory pages (4 KiB) and no more. Behind the
/// result, stdout lists what is left in the state folder.
fn with_pages(env: &TestEnv, pages: usize) -> Finished {
    let oo = env!("CARGO_BIN_EXE_oo");
    let line = format!(
        "mkdir -p state && mount -t tmpfs -o size={size},mode=0700 none state && \
         OO_STATE_DIR=$PWD/state {oo} start --json x; code=$?; \
         echo ==; find state -type f; exit $code",
        size = pages * 4096,
    );
    let unshare = [
        "--user",
        "--map-root-user",
        "--mount",
        "/bin/bash",
        "-c",
        &line,
    ];
    env.program("/usr/bin/unshare").args(unshare).run()
}

pub(crate) fn unavailable() -> Option<String> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let try_it = || {
        let mount = "mount -t tmpfs -o size=4096 none /mnt";
        let unshare = [
            "--user",
            "--map-root-user",
            "--mount",
            "/bin/sh",
            "-c",
            mount,
        ];
        match Command::new("/usr/bin/unshare").args(unshare).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(problem) => Some(problem.to_string()),
        }
    };
    REASON
        .get_or_init(try_it)
        .clone()
        .map(|why| format!("no tmpfs can be mounted here: {why}"))
}

#[test]
fn a_disk_that_is_full_before_during_or_at_the_end() {
    if !goes_on(Lane::Mounts, "start_full_disk", unavailable()) {
        return;
    }
    let mut seen = [0; 3];
    for pages in 1..=12 {
        let env = TestEnv::with(&Claude::Fake, &Scenario::says("the answer"));
        let done = with_pages(&env, pages);
        let (document, left) = done.stdout.split_once("\n==\n").expect("the list of files");
        let result: Value = serde_json::from_str(document).expect("one document");
        let class = result["class"].as_str().unwrap();
        match class {
            "refused" => {
                seen[0] += 1;
                done.expect_code(1);
                assert!(
                    done.stderr.contains("No space left on device"),
                    "{}",
                    done.stderr
                );
                assert!(done.stderr.contains("/state"), "{}", done.stderr);
                // A lock file is never taken away; it holds nothing.
                let rest: Vec<_> = left
                    .lines()
                    .filter(|path| !path.ends_with(".lock"))
                    .collect();
                assert_eq!(rest, [""; 0], "{pages} pages");
                assert!(env.recorded_starts().is_empty());
            }
            "completed" => {
                assert_eq!(result["result"], "the answer");
                let kept = left.lines().any(|path| path.ends_with("/result.json"));
                seen[if kept { 2 } else { 1 }] += 1;
                // The answer was printed, but it is not kept: the caller is told.
                done.expect_code(if kept { 0 } else { 4 });
                assert_eq!(
                    kept,
                    !done.stderr.contains("result.json"),
                    "{}",
                    done.stderr
                );
            }
            "failed" => {
                seen[1] += 1;
                done.expect_code(4);
                let cause = &result["cause"];
                assert!(
                    *cause == json!("no-output") || *cause == json!("no-result"),
                    "{cause}"
                );
                assert!(
                    result["note"].as_str().unwrap().contains("is full"),
                    "{result:#}"
                );
            }
            other => panic!("{other} with {pages} pages"),
        }
        assert!(!left.contains(".oo-"), "no half-written file: {left}");
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "every moment was met: {seen:?}"
    );
}
