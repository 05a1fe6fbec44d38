//! Transcripts as claude writes and tears them.

use super::*;

const COST: &str = r#"{"type":"cost-state","sessionId":"s","totalCostUSD":0.000125,"totalAPIDuration":104,"modelUsage":{"m":{"costUSD":0.000125}},"hasUnknownModelCost":false}"#;
const MARK: &str = r#"{"parentUuid":"p","isSidechain":false,"type":"user","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]},"rowSource":"harness"}"#;
const SAID: &str = r#"{"parentUuid":"p","isSidechain":false,"message":{"role":"assistant","content":[]},"type":"assistant"}"#;
const ASKED: &str =
    r#"{"type":"user","message":{"role":"user","content":"why [Request interrupted by user]?"}}"#;

fn session() -> Uuid {
    Uuid::try_parse("77c69075-1c8e-4953-abac-a26fead0cc6d").unwrap()
}

#[test]
fn folder_names() {
    let table = [
        ("/work/a.b_c/D1", "-work-a-b-c-D1"),
        ("/é", "--"),
        ("/😀", "---"),
        ("/", "-"),
    ];
    for (cwd, name) in table {
        assert_eq!(folder_name(Path::new(cwd)), name, "{cwd}");
    }
}

#[test]
fn a_transcript_is_found_by_its_name_wherever_it_lies() {
    let config = tempfile::tempdir().unwrap();
    assert_eq!(find(config.path(), session(), None), None);
    let cwd = Path::new("/some/where");
    let name = format!("{}.jsonl", session());
    let folder = config.path().join("projects/other");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(&name), "x").unwrap();
    fs::write(config.path().join("projects/stray"), "x").unwrap();
    assert_eq!(
        find(config.path(), session(), Some(cwd)),
        Some(folder.join(&name))
    );
    let guessed = config.path().join("projects/-some-where");
    fs::create_dir_all(&guessed).unwrap();
    fs::write(guessed.join(&name), "x").unwrap();
    assert_eq!(
        find(config.path(), session(), Some(cwd)),
        Some(guessed.join(&name))
    );
}

#[test]
fn the_last_permission_mode_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let user = |mode: &str| format!("{{\"type\":\"user\",\"permissionMode\":\"{mode}\"}}\n");
    fs::write(
        &path,
        [user("default"), user("plan"), format!("{SAID}\n{MARK}\n")].concat(),
    )
    .unwrap();
    assert_eq!(permission_mode(&path).unwrap().as_deref(), Some("plan"));
    fs::write(&path, SAID).unwrap();
    assert_eq!(permission_mode(&path).unwrap(), None);
}

#[test]
fn growth_shows_in_the_extent_riders_included() {
    let folder = tempfile::tempdir().unwrap();
    let transcript = folder.path().join("s.jsonl");
    assert_eq!(extent(&transcript), Extent::default());
    fs::write(&transcript, "12345").unwrap();
    let first = extent(&transcript);
    assert_eq!(first.bytes, 5);
    assert_eq!(extent(&transcript), first);
    let riders = folder.path().join("s/subagents/workflows/w");
    fs::create_dir_all(&riders).unwrap();
    fs::write(riders.join("agent-1.jsonl"), "123").unwrap();
    assert_eq!(extent(&transcript).bytes, 8);
}

#[test]
fn a_tail_begins_at_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    fs::write(&path, "aaa\nbbb\nccc").unwrap();
    for (limit, expected, whole) in [
        (0, "", false),
        (2, "", false),
        (3, "ccc", false),
        (6, "ccc", false),
        (7, "bbb\nccc", false),
        (10, "bbb\nccc", false),
        (11, "aaa\nbbb\nccc", true),
        (99, "aaa\nbbb\nccc", true),
    ] {
        let found = tail(&path, limit).unwrap();
        assert_eq!(
            (
                String::from_utf8(found.bytes).unwrap().as_str(),
                found.whole
            ),
            (expected, whole),
            "limit {limit}"
        );
    }
    assert_eq!(
        tail(&folder.path().join("none"), 9).unwrap_err().kind(),
        Kind::NotFound
    );
}

#[test]
fn rows_torn_and_joined() {
    let table = [
        (String::new(), None, false, 0, 0),
        (format!("{COST}\n"), Some(0.000_125), false, 1, 0),
        (
            format!("{SAID}{COST}\n{MARK}\n"),
            Some(0.000_125),
            true,
            3,
            0,
        ),
        (
            format!("{{\"type\":\"assis{COST}\n"),
            Some(0.000_125),
            false,
            1,
            1,
        ),
        (
            format!("{}{SAID}\n{COST}\n", &MARK[..40]),
            Some(0.000_125),
            false,
            2,
            1,
        ),
        (
            format!("{COST}\n{{\"type\":\"cost-sta"),
            Some(0.000_125),
            false,
            1,
            1,
        ),
        (format!("{MARK}\n{SAID}\n"), None, false, 2, 0),
        (format!("{MARK}\n{ASKED}\n"), None, false, 2, 0),
        (format!("{SAID}\n{ASKED}\n"), None, false, 2, 0),
        ("12\n[1]\nnull\n\"x\"\n".to_owned(), None, false, 0, 4),
    ];
    for (text, cost, interrupted, rows, bad) in table {
        let found = parse(text.as_bytes());
        assert_eq!(
            (
                found.total_cost_usd,
                found.interrupted,
                found.rows,
                found.bad
            ),
            (cost, interrupted, rows, bad),
            "{text}"
        );
    }
    assert_eq!(parse(b"\xff\xfe\n").bad, 1);
}

#[test]
fn the_cost_is_found_behind_much_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let long = format!("{{\"type\":\"x\",\"y\":\"{}\"}}\n", "z".repeat(700_000));
    fs::write(&path, format!("{COST}\n{long}{long}")).unwrap();
    assert_eq!(total_cost(&path).unwrap(), Some(0.000_125));
    fs::write(&path, &long).unwrap();
    assert_eq!(total_cost(&path).unwrap(), None);
}
