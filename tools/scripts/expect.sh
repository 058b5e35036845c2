# shellcheck shell=bash
# Sourced by the tests of scripts.
failures=0

# expect WHAT EXPECTED ACTUAL
expect() {
  if [[ $2 != "$3" ]]; then
    printf '%s\n  expected: %s\n  found:    %s\n' "$1" "$2" "$3" >&2
    failures=$((failures + 1))
  fi
}

# expect_contains WHAT PART TEXT
expect_contains() {
  if [[ $3 != *"$2"* ]]; then
    printf '%s\n  expected to contain: %s\n  found: %s\n' "$1" "$2" "$3" >&2
    failures=$((failures + 1))
  fi
}

# fake_command NAME: puts an executable made of stdin in front of everything else on the PATH.
fake_command() {
  mkdir -p "$TEST_TMPDIR/fake_commands"
  cat >"$TEST_TMPDIR/fake_commands/$1"
  chmod +x "$TEST_TMPDIR/fake_commands/$1"
  PATH=$TEST_TMPDIR/fake_commands:${PATH#"$TEST_TMPDIR/fake_commands:"}
}
