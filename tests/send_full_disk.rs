//! `oo send` onto a disk that is full: a line is written whole or not at all, and said to be so.

use serde_json::Value;
use uuid::Uuid;

use crate::start_full_disk::unavailable;
use crate::support::env::TestEnv;
use crate::support::lanes::{Lane, goes_on};

#[test]
fn a_line_that_does_not_fit_is_not_sent() {
    if !goes_on(Lane::Mounts, "send_full_disk", unavailable()) {
        return;
    }
    let env = TestEnv::new();
    let session = Uuid::new_v4();
    let text = env.file("text", "x".repeat(3 * 4096));
    let mut seen = [0; 2];
    for pages in 2..=10 {
        let script = format!(
            "mkdir -p state && mount -t tmpfs -o size={size},mode=0700 none state && \
             mkdir -m 700 state/inbox && printf 'old\\n' > state/inbox/{session}.inbox && \
             OO_STATE_DIR=$PWD/state {oo} send {session} - --json < {text}; code=$?; \
             echo ==; cat state/inbox/{session}.inbox; exit $code",
            size = pages * 4096,
            oo = env!("CARGO_BIN_EXE_oo"),
            text = text.display(),
        );
        let unshare = [
            "--user",
            "--map-root-user",
            "--mount",
            "/bin/bash",
            "-c",
            &script,
        ];
        let done = env.program("/usr/bin/unshare").args(unshare).run();
        let (document, inbox) = done.stdout.split_once("\n==\n").expect("the inbox");
        let document: Value = serde_json::from_str(document).expect("one document");
        if document["class"] == "refused" {
            seen[0] += 1;
            done.expect_code(1);
            let message = document["message"].as_str().unwrap();
            assert!(message.contains("o space left"), "{message}");
            assert_eq!(document["msg_id"], Value::Null);
            assert_eq!(inbox, "old\n", "{pages} pages");
        } else {
            seen[1] += 1;
            done.expect_code(3);
            assert_eq!(document["class"], "queued-offline");
            assert_eq!(inbox.lines().count(), 2, "{pages} pages");
            assert!(inbox.ends_with("}\n"), "{pages} pages");
        }
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "both were met: {seen:?}"
    );
}
