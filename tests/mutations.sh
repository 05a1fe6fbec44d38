#!/usr/bin/env bash
# Takes out, one at a time, what keeps a line from coming to the wrong place or from being lost,
# and expects the tests to notice. Each mutation is one substitution that has to apply; each is
# tried in a copy of the work tree, with a target folder of its own that the copies share.
#
#     tests/mutations.sh [NAME…]       all, or those named
#
# Exit code 0: every mutation was noticed.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=target/mutations/tree
export CARGO_TARGET_DIR="$PWD/target/mutations/build"

# name | file | what is replaced (a Perl pattern) | by what | tests that have to fail
mutations=(
'listener|src/doorman/reach.rs|open\.door\s*\.belongs_to\(&self\.peer\)\s*\.map_err\(\|shut\| shut\.text\(&open\.socket\)\)\?;||steer_doors::'
'environment-socket|src/doorman/reach.rs|door\.belongs_to\(owner\)\?;|let _ = owner;|steer_doors::'
'explicit-session|src/doorman/foreground.rs|row\.session_id == session && row\.live\(\)|row.live()|doorman_by_hand::'
'session-id-in-frame|src/inbox/frame.rs|    session_id: Uuid,|    #[serde(skip)]\n    session_id: Uuid,|inbox::frame'
'session-switch|src/doorman/deliver/offer.rs|&& session != self\.inbox\.session\(\)|\&\& session.is_nil()|deliver::'
'record-before-write|src/doorman/deliver/offer.rs|        self\.record\(ack\.clone\(\)\);|        let _ = \&ack;|deliver::'
'search-before-offer|src/doorman/deliver/intake.rs|entry\.ack\.filter\(\|ack\| ack\.transcript_offset\.is_some\(\)\)|entry.ack.filter(\|_\| false)|deliver::'
'offer-again|src/doorman/deliver/arrivals.rs|deadline <= now =>|deadline <= now \&\& flight.length == 0 =>|deliver::'
'order-of-a-sender|src/doorman/deliver/lanes.rs|if self\.offered > 0 \{|if self.offered > 9 {|lanes::'
)

failed=0
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | xargs -0 cp --parents -t "$copy"
for mutation in "${mutations[@]}"; do
    IFS='|' read -r name file rest <<<"${mutation//\\|/$'\001'}"
    IFS='|' read -r pattern replacement tests <<<"$rest"
    pattern=${pattern//$'\001'/\\|}
    replacement=${replacement//$'\001'/|}
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    cp "$file" "$copy/$file"
    if ! PATTERN=$pattern REPLACEMENT=$replacement perl -0pi -e '
        my $r = $ENV{REPLACEMENT}; $r =~ s/\\n/\n/g; $r =~ s/\\&/&/g;
        my $n = s/$ENV{PATTERN}/$r/; END { exit($n ? 0 : 1) }' "$copy/$file"; then
        echo "$name: does not apply any more to $file" >&2
        failed=1
    elif ! (cd "$copy" && cargo test --quiet --no-run 2>build.log); then
        echo "$name: does not build: see $copy/build.log" >&2
        failed=1
    elif (cd "$copy" && OO_TEST_LANES=hermetic cargo test --quiet "$tests" >test.log 2>&1); then
        echo "$name: NOT NOTICED by the tests of $tests" >&2
        failed=1
    else
        echo "$name: noticed ($(grep -E '^    [a-z_0-9:]+$' "$copy/test.log" | sort -u | head -3 | tr -s ' \n' ' '))"
    fi
    cp "$file" "$copy/$file"
done
exit "$failed"
