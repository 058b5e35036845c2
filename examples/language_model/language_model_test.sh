#!/bin/bash
# PROGRAM: two epochs, after which it takes fewer bits than counting letters behind one letter; names are made up; a model is saved.
set -u
program=$1
failed=0
check() {  # WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "$what" >&2; failed=1; }
}
model=$TEST_TMPDIR/language_model.safetensors
output=$("$program" --train=examples/data/names/train.tsv --test=examples/data/names/test.tsv --save="$model" --epochs=2) || failed=1
echo "$output"
read -r bits counted <<<"$(tail -n 1 <<<"$output" | sed -n 's/^test bits per character \([0-9.]*\), by counting \([0-9.]*\)$/\1 \2/p')"
behind_one=$(sed -n 's/^bits per character by counting.* 1: \([0-9.]*\) .*/\1/p' <<<"$output")
# What Kneser-Ney smoothing of these names gives, computed elsewhere.
check "behind one letter: ${behind_one:-nothing}, expected 3.494" test "${behind_one:-}" = 3.494
check "the best by counting: ${counted:-nothing}, expected 2.8770" test "${counted:-}" = 2.8770
check "${bits:-nothing} bits, expected fewer than ${behind_one:-}" awk "BEGIN { exit !(${bits:-9} < ${behind_one:-0}) }"
check "no names made up" grep -q '^names made up: [A-Z-][a-z-]*' <<<"$output"
check "no model" test -s "$model"
exit $failed
