#!/bin/bash
# SOURCE GUIDE: each part of the source between two lines "// [name]" stands in the guide, line for
# line, indented by four.
set -u
source=$1 guide=$2
failed=0
parts=$(sed -n 's|^// \[\(.*\)\]$|\1|p' "$source" | sort -u)
if [[ -z $parts ]]; then
  echo "no parts in $source" >&2
  exit 1
fi
for part in $parts; do
  text=$(awk -v mark="// [$part]" '$0 == mark { inside = !inside; next } inside' "$source" |
    sed -e 's/^\(.\)/    \1/')
  if [[ -z $text || "$(cat "$guide")" != *"$text"* ]]; then
    printf 'the guide does not hold the part [%s]:\n%s\n' "$part" "$text" >&2
    failed=1
  fi
done
exit $failed
