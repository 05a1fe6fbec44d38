//! Each quirk that stands for a field report does what the reference says.

use std::os::unix::process::ExitStatusExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Done, World, play};

const BYPASS: &str = "--permission-mode=bypassPermissions";

fn quirky(quirks: &Value) -> Done {
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":"echo x"}}]},{"text":"the answer"}],
        "quirks":quirks});
    play(&script.to_string(), &[BYPASS])
}

#[test]
fn silence_at_the_start_until_a_signal() {
    let world = World::new();
    let script = r#"{"replies":[],"quirks":{"silent_start":true}}"#;
    let mut run = world.start(world.command(script, &[]), Some(b"hi"));
    let sessions = world.path(".claude/sessions");
    run.until("a registry row", |_| sessions.is_dir());
    assert!(!run.is_over());
    run.signal(Signal::SIGTERM);
    let done = run.wait();
    done.expect(143);
    assert_eq!(done.text(), "");
}

#[test]
fn silence_after_a_tool_result() {
    let world = World::new();
    let script = json!({"replies":[{"tools":[{"name":"Bash","input":{"command":"echo x"}}]}],
        "quirks":{"hang_after_tool_result":true}});
    let mut run = world.start(world.command(&script.to_string(), &[BYPASS]), Some(b"hi"));
    run.until_said("tool_result", 1);
    assert!(!run.is_over());
    run.signal(Signal::SIGINT);
    let done = run.wait();
    done.expect(0);
    assert_eq!(done.results()[0]["terminal_reason"], "aborted_streaming");
}

#[test]
fn it_never_exits_and_ignores_signals() {
    let world = World::new();
    let script = json!({"replies":[{"text":"x"}],
        "quirks":{"never_exit":true,"ignore_signals":["INT","TERM"]}});
    let mut run = world.start(world.command(&script.to_string(), &[]), Some(b"hi"));
    run.until_said(r#""type":"result""#, 1);
    run.signal(Signal::SIGINT);
    run.signal(Signal::SIGTERM);
    run.signal(Signal::SIGHUP);
    // Only the last of the three is heeded.
    run.wait().expect(129);
}

#[test]
fn an_orphan_holds_stdout() {
    use std::io::Read;
    use std::os::fd::AsFd;
    let world = World::new();
    let script = r#"{"replies":[{"text":"x"}],"quirks":{"orphan_ms":3000}}"#;
    let mut command = world.command(script, &[]);
    let (mut ours, theirs) = std::io::pipe().unwrap();
    std::fs::write(world.path("in"), "hi").unwrap();
    command
        .stdin(std::fs::File::open(world.path("in")).unwrap())
        .stdout(theirs)
        .stderr(std::process::Stdio::null());
    assert!(command.spawn().unwrap().wait().unwrap().success());
    drop(command);
    let mut said = String::new();
    while !said.ends_with('\n') || !said.contains(r#""type":"result""#) {
        let mut chunk = [0; 4096];
        let n = ours.read(&mut chunk).unwrap();
        assert!(n > 0, "{said}");
        said += &String::from_utf8_lossy(&chunk[..n]);
    }
    let mut fds = [PollFd::new(ours.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::ZERO).unwrap();
    assert_eq!(ready, 0, "claude is gone, and nobody holds the pipe");
    assert_eq!(ours.read(&mut [0; 1]).unwrap(), 0, "the orphan ends");
}

#[test]
fn ends_without_a_word_or_without_a_result() {
    let done = quirky(&json!({"at":{"launch":[{"exit":0}]}}));
    done.expect(0);
    assert_eq!((done.text().as_str(), done.stderr.as_str()), ("", ""));
    let done = quirky(&json!({"no_result":true}));
    assert!(done.expect(0).results().is_empty());
    let done = quirky(&json!({"at":{"launch":[{"stderr":"boom\n"},{"exit":3}]}}));
    assert_eq!(done.expect(3).stderr, "boom\n");
    for (name, number) in [("SEGV", 11), ("KILL", 9), ("ABRT", 6), ("TERM", 15)] {
        let done = quirky(&json!({"at":{"launch":[{"signal":name}]}}));
        assert_eq!(done.status.signal(), Some(number), "{name}");
    }
}

#[test]
fn results_that_mislead() {
    let done = quirky(&json!({"result_patch":[{"set":{"result":""}}]}));
    assert_eq!(done.expect(0).results()[0]["result"], "");
    let done = quirky(
        &json!({"result_patch":[{"set":{"is_error":true},"drop":["result"]}],
        "exit_code":0}),
    );
    let result = &done.expect(0).results()[0];
    assert_eq!(result["is_error"], true);
    assert!(result.get("result").is_none());
    let script = r#"{"replies":[{"status":400}],"quirks":{"exit_code":0}}"#;
    assert_eq!(play(script, &[]).expect(0).results()[0]["is_error"], true);
    let done = quirky(&json!({"report_session_id":"another"}));
    assert_eq!(done.expect(0).results()[0]["session_id"], "another");
}

#[test]
fn rows_that_are_none() {
    let done = quirky(&json!({"at":{"init":[
        {"raw":"[DEBUG] not json\n"},
        {"hex":"7bfffe7d0a"},
        {"line":{"type":"from_the_future"}},
        {"big_line_mib":2}]}}));
    done.expect(0);
    assert!(
        done.stdout
            .windows(4)
            .any(|w| w == [b'{', 0xff, 0xfe, b'}'])
    );
    assert!(done.text().contains("[DEBUG] not json\n"));
    let unknown = done
        .rows()
        .into_iter()
        .find(|r| r["type"] == "from_the_future")
        .unwrap();
    assert!(unknown["session_id"].is_string() && unknown["uuid"].is_string());
    let longest = done.stdout.split(|b| *b == b'\n').map(<[u8]>::len).max();
    assert!(longest > Some(2 << 20));
    let done = quirky(&json!({"stdout_cut_bytes":100}));
    assert_eq!(done.expect(0).stdout.len(), 100);
    let torn = "{\"type\":\"user\",\"mess";
    let done = quirky(&json!({"at":{"reply":[{"nth":1,"transcript":torn}]}}));
    assert_eq!(done.expect(0).transcript.matches("\"mess{").count(), 1);
}

#[test]
fn tasks_and_tools_that_are_not_told_of() {
    let script = json!({"replies":[
        {"tools":[{"name":"Agent","input":{"description":"d","prompt":"p"},
            "replies":[{"text":"never","delay_ms":60000}]}]},{"text":"done"}],
        "quirks":{"kill_tasks_at_result":true}});
    let done = play(&script.to_string(), &[BYPASS]);
    assert_eq!(done.expect(0).results()[0]["terminal_reason"], "completed");
    assert!(!done.text().contains("task_notification"));
    let done = quirky(&json!({"deny":["Bash"]}));
    assert_eq!(
        done.expect(0).results()[0]["permission_denials"][0]["tool_name"],
        "Bash"
    );
    assert!(
        done.kinds()
            .contains(&"system/permission_denied".to_owned())
    );
}

#[test]
fn heartbeats_while_a_tool_runs() {
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":"sleep 0.3"}}]},{"text":"x"}],
        "quirks":{"tool_progress_ms":20,"task_after_ms":100}});
    let done = play(&script.to_string(), &[BYPASS]);
    let kinds = done.expect(0).kinds();
    assert!(
        kinds.iter().filter(|k| *k == "tool_progress").count() >= 2,
        "{kinds:?}"
    );
    assert!(kinds.contains(&"system/task_started".to_owned()));
}

#[test]
fn results_together_and_another_session() {
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":"sleep 0.1","run_in_background":true}}]},
        {"text":"first"},{"text":"second"}],"quirks":{"hold_results":true}});
    let kinds = play(&script.to_string(), &[BYPASS]).expect(0).kinds();
    assert_eq!(
        kinds[kinds.len() - 2..],
        ["result/success", "result/success"]
    );
    let to = "ffffffff-0000-4000-8000-000000000000";
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":"sleep 0.1","run_in_background":true}}]},
        {"text":"first"},{"text":"second"}],
        "quirks":{"switch_session":{"after_turn":1,"to":to}}});
    let done = play(&script.to_string(), &[BYPASS]);
    let results = done.expect(0).results();
    assert_ne!(results[0]["session_id"], to);
    let rows = done.rows();
    let reset = rows.iter().find(|r| r["type"] == "conversation_reset");
    assert_eq!(reset.unwrap()["session_id"], results[0]["session_id"]);
    assert_eq!(results[1]["session_id"], to);
}

#[test]
fn resumes_of_what_is_not_there() {
    for (how, stdout, stderr) in [("row", true, false), ("stderr", false, true)] {
        let script = json!({"replies":[],"quirks":{"lost_session":how}}).to_string();
        let done = play(&script, &["--resume=00000000-0000-4000-8000-000000000000"]);
        done.expect(1);
        assert_eq!(!done.stdout.is_empty(), stdout, "{how}");
        assert_eq!(!done.stderr.is_empty(), stderr, "{how}");
    }
}

#[test]
fn no_api_and_no_login() {
    let script = r#"{"replies":[],"quirks":{"dead_api":true}}"#;
    let done = play(script, &[]);
    let retries = done
        .expect(1)
        .kinds()
        .iter()
        .filter(|k| *k == "system/api_retry")
        .count();
    assert_eq!(retries, 10);
    assert_eq!(done.results()[0]["api_error"], "connection_failed");
    let done = play(r#"{"replies":[],"quirks":{"not_logged_in":true}}"#, &[]);
    assert_eq!(
        done.expect(1).results()[0]["result"],
        "Not logged in · Please run /login"
    );
    assert_eq!(done.rows()[0]["apiKeySource"], "none");
}
