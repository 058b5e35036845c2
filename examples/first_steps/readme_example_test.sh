#!/bin/bash
# PROGRAM SOURCE PAGE: the page (README.md, a guide) holds the source, line for line, and the
# program's output.
set -u
failed=0
holds() {  # NAME LINES: the lines of $2 stand in the README in a row, indented by four
  local indented
  indented=$(sed -e 's/^\(.\)/    \1/' <<<"$2")
  if [[ "$(cat "$page")" != *"$indented"* ]]; then
    printf '%s does not hold the %s:\n%s\n' "$page" "$1" "$indented" >&2
    failed=1
  fi
}
program=$1 source=$2 page=$3
holds program "$(cat "$source")"
holds output "$("$program")"
exit $failed
