#!/bin/bash
# Runs tools/coverage in a small tree with stand-ins for bazel and gcovr.
source tools/scripts/expect.sh
tree=$(readlink -f "$TEST_TMPDIR")/tree
mkdir -p "$tree/tools" "$tree/memory/io" "$tree/nn" "$tree/bin/memory" "$tree/execution_root/links"
ln -s ../memory "$tree/execution_root/memory"
touch "$tree/memory/io/c.h"
ln -s ../../memory/io/c.h "$tree/execution_root/links/c.h"
cp -L tools/coverage "$tree/tools/"
export CALLS=$TEST_TMPDIR/calls TREE=$tree

fake_command bazel <<'X'
#!/bin/bash
if [[ $1 == info ]]; then
  [[ ${*: -1} == bazel-bin ]] && echo "$TREE/bin" || echo "$TREE/execution_root"
  exit
fi
printf '%s\n' "$*" >>"$CALLS"
[[ -e $TREE/bin/memory/old.gcda ]] && echo "counts of an earlier run" >>"$CALLS"
[[ -z $NOTHING ]] && touch "$TREE/bin/memory/new.gcda"
exit "${BAZEL_STATUS:-0}"
X
fake_command gcovr <<'X'
#!/bin/bash
[[ $1 == --version ]] && exit
printf 'gcovr in %s: %s\n' "$PWD" "$*" >>"$CALLS"
for word; do
  case $word in
    --json-summary=*) cat >"${word#*=}" <<'J'
{"files": [{"filename": "memory/a.cc", "line_total": 3000, "line_covered": 2999, "branch_total": 10, "branch_covered": 5},
           {"filename": "memory/io/b.cc", "line_total": 4, "line_covered": 1, "branch_total": 0, "branch_covered": 0},
           {"filename": "links/c.h", "line_total": 4, "line_covered": 3, "branch_total": 4, "branch_covered": 1},
           {"filename": "memory/io/c.h", "line_total": 4, "line_covered": 2, "branch_total": 4, "branch_covered": 1}]}
J
    ;;
    --output=*) echo page >"${word#*=}" ;;
  esac
done
exit "${GCOVR_STATUS:-0}"
X

# run EXPECTED_STATUS ARGUMENTS...: `output` is then what it printed.
run() {
  local expected_status=$1 status
  shift
  : >"$CALLS"
  output=$(cd "$TEST_TMPDIR" && "$tree/tools/coverage" "$@" 2>&1)
  status=$?
  expect "tools/coverage $*: exit status, $output" "$expected_status" "$status"
}

table="| folder | lines | covered | branches | covered |
|---|---|---|---|---|
| \`memory\` | 3,000 | 100.0 % | 10 | 50.0 % |
| \`memory/io\` | 8 | 50.0 % | 4 | 25.0 % |
| all | 3,008 | 99.8 % | 14 | 42.9 % |"
touch "$tree/bin/memory/old.gcda"
run 0 --output=out
expect "what is printed" "$table
$(readlink -f "$TEST_TMPDIR")/out/index.html" "$output"
expect "what is kept" "$table" "$(cat "$TEST_TMPDIR/out/coverage.md")"
expect "the page" page "$(cat "$TEST_TMPDIR/out/index.html")"
calls=$(cat "$CALLS")
expect_contains "sources of the folder alone are counted" '--per_file_copt=^(memory)/.*\.cc$@--coverage' "$calls"
expect_contains "tests run" "test --compilation_mode=dbg" "$calls"
expect_contains "those of the folder" " //memory/..." "$calls"
expect_contains "gcovr is in Bazel's folder" "gcovr in $tree/execution_root: --root=$tree/execution_root" "$calls"
expect_contains "counts go there" "--test_env=GCOV_PREFIX=$tree/execution_root " "$calls"
expect_contains "and leaves out what is not the folder's" "--filter=$tree/memory/" "$calls"
[[ $calls != *"earlier run"* ]] || expect "counts of an earlier run" gone there

run 0 nn memory/io -- --test_size_filters=small
expect_contains "several folders" '--per_file_copt=^(nn|memory/io)/.*\.cc$@' "$(cat "$CALLS")"
expect_contains "flags of Bazel, folders" "--test_size_filters=small //nn/... //memory/io/..." "$(cat "$CALLS")"
expect_contains "where it is by default" "$(readlink -f "$TEST_TMPDIR")/coverage/index.html" "$output"

BAZEL_STATUS=3 run 3
expect_contains "tests that failed" "some tests failed" "$output"
expect_contains "the numbers come all the same" "| all | 3,008 |" "$output"
BAZEL_STATUS=1 run 2
expect_contains "what does not build" "bazel ended with 1" "$output"
GCOVR_STATUS=7 run 2
expect_contains "gcovr fails" "gcovr ended with 7" "$output"
run 0 --no-run
expect "no test runs" "" "$(grep -v '^gcovr' "$CALLS")"
rm "$tree/bin/memory/new.gcda"
NOTHING=1 run 2
expect_contains "nothing ran" "found no counts under $tree/bin: nothing of memory ran" "$output"
run 2 momery
expect_contains "no such folder" "found 'momery', expected" "$output"
run 2 --wrong
run 0 --help
expect_contains "help" "tools/coverage [--output=FOLDER]" "$output"
rm "$TEST_TMPDIR/fake_commands/gcovr"
mkdir "$TEST_TMPDIR/few_commands"
ln -s /usr/bin/env "$TEST_TMPDIR/few_commands/"
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$TEST_TMPDIR/few_commands/python3"
PATH=$TEST_TMPDIR/fake_commands:$TEST_TMPDIR/few_commands run 2
expect_contains "without gcovr" "no program gcovr; Debian's package is gcovr" "$output"
exit $((failures > 0))
