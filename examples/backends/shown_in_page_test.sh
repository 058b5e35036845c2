#!/bin/bash
# PAGE SOURCE...: the page holds each source, line for line, indented by four.
set -u
page=$1 failed=0
shift
for source in "$@"; do
  if [[ "$(cat "$page")" != *"$(sed -e 's/^\(.\)/    \1/' "$source")"* ]]; then
    printf '%s does not hold %s\n' "$page" "$source" >&2
    failed=1
  fi
done
exit $failed
