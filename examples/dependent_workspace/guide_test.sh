#!/bin/bash
# PAGE TIDEPOOL FILE...: what the page's section of a device shows is in the files, or in what `tidepool kernels` prints,
# line for line; lines that are "..." leave something out.
set -u
page=$1 tidepool=$2
shift 2
all=$'\n'$(cat -- "$@")$'\n'$("$tidepool" kernels)$'\n'
shown=0 failed=0
while IFS= read -r -d '' piece; do
  shown=$((shown + 1))
  [[ $all == *$'\n'"$piece"$'\n'* ]] && continue
  printf '%s shows what is in no file:\n%s\n\n' "$page" "$piece" >&2
  failed=1
done < <(awk '
  function finish() { sub(/\n+$/, "", piece); if (piece != "") printf "%s%c", piece, 0; piece = "" }
  /^## / { here = /^## A device of one/ }
  !here { next }
  /^    \.\.\.$/ { finish(); next }
  /^    / { piece = piece substr($0, 5) "\n"; next }
  /^$/ { if (piece != "") piece = piece "\n"; next }
  { finish() }
  END { finish() }' "$page")
if ((shown < 10)); then
  echo "$page shows $shown pieces of code, expected 10 and more" >&2
  failed=1
fi
exit $failed
