#!/bin/bash
# Runs tools/gates in a copied tree with stand-ins for git, bazel and the compilers.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools" "$tree/a"
cp -L tools/gates "$tree/tools/"
touch "$tree/a/x.cc" "$tree/a/y z.h"
export CALLS=$TEST_TMPDIR/calls

fake_command git <<'X'
#!/bin/sh
case $3 in
  rev-list) echo "${COMMITS:-0}" ;;
  ls-files) printf "${SOURCES-a/x.cc\na/y z.h\n}" ;;
esac
X
fake_command bazel <<'X'
#!/bin/sh
echo "bazel $*" >>"$CALLS"
[ -z "$BAZEL_SECONDS" ] || exec sleep "$BAZEL_SECONDS"
exit "${BAZEL_STATUS:-0}"
X
fake_command clang <<'X'
#!/bin/sh
X
fake_command clang-format <<'X'
#!/bin/sh
shift
for file; do [ -e "$file" ] || echo "$file: error: no such file"; done
[ -z "$UNTIDY" ] || printf '%s:1:2: warning: code should be clang-formatted\n' "$UNTIDY" "$UNTIDY" >&2
X

# run WHAT EXPECTED_STATUS [arguments]: `output` is then what it printed.
run() {
  local what=$1 expected_status=$2 status
  shift 2
  : >"$CALLS"
  output=$(cd / && "$tree/tools/gates" "$@" 2>&1)
  status=$?
  expect "$what: exit status, $output" "$expected_status" "$status"
}

run "formatted" 0 format
expect "formatted is silent" "" "$output"
UNTIDY="a/y z.h" run "a file that is not formatted" 1 format
expect_contains "it is named" "2 a/y z.h" "$output"

SOURCES="" run "no checkout" 2 format
expect_contains "no checkout is said" "expected a git checkout" "$output"

run "turns" 0 turns
turns=$(wc -l <<<"$output")
commands=$(cut -d' ' -f2- <<<"$output")
expect "every turn is another" "$turns" "$(sort -u <<<"$commands" | wc -l)"
for folder in memory ndarray nn eval backends; do
  for way in clang asan tsan ubsan; do
    [[ $way == tsan && $folder == @(eval|backends) ]] && continue # no threads of its own
    grep -q -- "--config=$way .*//$folder/" <<<"$commands" || expect "a turn of $folder under $way" found none
  done
done
COMMITS=$((5 * turns + 1)) run "the turn of a revision" 0 turn
expect_contains "it is said" "turn 1 of $turns" "$output"
words=$(sed -n 2p <<<"$commands")
expect "the turn's command" "bazel test --keep_going --build_tests_only --test_size_filters=small,medium ${words#bazel test }" "$(cat "$CALLS")"
words=$(sed -n 1p <<<"$commands")
run "a turn by its number" 0 turn 0
expect "of clang" "bazel build --keep_going ${words#bazel build }" "$(cat "$CALLS")"
BAZEL_STATUS=3 run "a turn that fails" 3 turn 1
BAZEL_SECONDS=60 TURN_SECONDS=1 run "a turn that takes too long" 75 turn 1
expect_contains "that is said" "turn 1 was ended after 1 s" "$output"
for wrong in "$turns" -1 x; do
  run "turn $wrong" 2 turn "$wrong"
  expect_contains "turn $wrong is named" "found turn '$wrong'" "$output"
done
run "no word" 1
run "another word" 1 formats
run "help" 0 --help
expect_contains "help" "tools/gates turn [N]" "$output"

rm "$TEST_TMPDIR/fake_commands/clang-format" "$TEST_TMPDIR/fake_commands/clang"
mkdir "$TEST_TMPDIR/few_commands"
for command in bash dirname readlink cut sort; do
  ln -s "$(command -v $command)" "$TEST_TMPDIR/few_commands/"
done
export PATH=$TEST_TMPDIR/fake_commands:$TEST_TMPDIR/few_commands
for gate in format reference "turn 0"; do
  # shellcheck disable=SC2086
  output=$("$tree/tools/gates" $gate 2>&1)
  expect "$gate without its program" 2 $?
  expect_contains "$gate says how to install it" "tools/install_packages --gates" "$output"
done
exit $((failures > 0))
