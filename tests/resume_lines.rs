//! Lines that wait in the inbox of a session that sleeps: they come with its next turn.

use serde_json::json;

use crate::support::env::PATIENCE;
use crate::support::held::until_file;
use crate::support::lanes::on_each_claude;
use crate::support::process::until_some;
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};
use crate::support::sleeping::Sleeping;

on_each_claude!(lines_that_waited_come_in_the_same_turn, |claude| {
    let slept = Sleeping::new(&claude);
    let env = &slept.env;
    for line in ["first line", "second line"] {
        let done = env
            .oo(["send", &slept.session, line, "--json", "--min-interval=0s"])
            .run();
        done.expect_code(3);
        assert_eq!(done.json()["class"], "queued-offline");
        let hint = done.json()["hint"].as_str().unwrap().to_owned();
        assert!(
            hint.contains(&format!("oo resume {}", slept.session)),
            "{hint}"
        );
    }
    let gate = until_file("go");
    env.script(&Scenario::new([
        gate,
        Reply::text("two"),
        Reply::text("three"),
    ]));
    let mut oo = slept.resuming(&["--allowed-tools=Bash"]);
    slept.until_at_work(&mut oo);
    until_some(PATIENCE, "both lines in the queue", || {
        let text = String::from_utf8(slept.bytes()).ok()?;
        let queued = |line: &str| {
            text.lines()
                .any(|row| row.contains("\"enqueue\"") && row.contains(line))
        };
        (queued("first line") && queued("second line")).then_some(())
    });
    env.file("go", "");
    let done = oo.wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(2), &json!(0))
    );
    // Those that waited come in their order. The prompt is before them as a rule; but a line that
    // is in the queue when claude looks there first begins the turn, and the prompt is folded in at
    // the next tool boundary as if it were the line (measured on both builds, the machine loaded).
    let arrived = in_context(&slept);
    assert_eq!(arrived.len(), 3, "{arrived:?}");
    let place = |line: &str| arrived.iter().position(|other| *other == line);
    assert!(place("first line") < place("second line"), "{arrived:?}");
});

/// In the order in which they came into the model's context: this turn's line, and those sent.
fn in_context(slept: &Sleeping) -> Vec<&'static str> {
    let rows = rows::transcript(&slept.env.home(), &slept.session);
    let context = rows.iter().filter(|row| {
        row.is("user") || (row.is("attachment") && row.0["attachment"]["type"] == "queued_command")
    });
    let texts: String = context.map(|row| row.0.to_string()).collect();
    let mut found: Vec<(usize, &str)> = ["go on", "first line", "second line"]
        .into_iter()
        .filter_map(|line| Some((texts.find(line)?, line)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, line)| line).collect()
}

on_each_claude!(
    without_a_tool_they_come_as_a_turn_of_their_own_or_wait,
    |claude| {
        let slept = Sleeping::new(&claude);
        let env = &slept.env;
        for line in ["first line", "second line"] {
            env.oo(["send", &slept.session, line, "--min-interval=0s"])
                .run()
                .expect_code(3);
        }
        let more = (0..3).map(|_| Reply::text("more"));
        env.script(&Scenario::new([Reply::text("two")].into_iter().chain(more)));
        let done = slept.resuming(&[]).wait(PATIENCE);
        done.expect_code(0);
        let result = done.json();
        let count = |field: &str| result[field].as_u64().unwrap();
        assert_eq!(
            count("doorman_delivered") + count("doorman_pending"),
            2,
            "{result:#}"
        );
        let arrived = in_context(&slept);
        assert!(arrived.contains(&"go on"), "{arrived:?}");
        assert_eq!(arrived.len() as u64, 1 + count("doorman_delivered"));
    }
);
