#!/bin/bash
# PROGRAM SOURCE README: the README holds the source, line for line, and the program's output.
set -u
failed=0
holds() {  # NAME LINES: the lines of $2 stand in the README in a row, indented by four
  local indented
  indented=$(sed -e 's/^\(.\)/    \1/' <<<"$2")
  if [[ "$(cat "$readme")" != *"$indented"* ]]; then
    printf 'README.md does not hold the %s of first_steps:\n%s\n' "$1" "$indented" >&2
    failed=1
  fi
}
program=$1 source=$2 readme=$3
holds program "$(cat "$source")"
holds output "$("$program")"
exit $failed
