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

refused_run() {  # TEXT STATUS FLAG...: ends with that status and the text
  local text=$1 status=$2 said found
  shift 2
  said=$("$program" "$@" 2>&1 >"${out:-/dev/null}")
  found=$?
  [[ $found == "$status" ]] || { echo "$*: status $found, expected $status" >&2; failed=1; }
  grep -qF -e "$text" <<<"$said" || { printf 'of %s: expected "%s", found "%s"\n' "$*" "$text" "$said" >&2; failed=1; }
}
names=examples/data/names/test.tsv
cp -L "$names" "$TEST_TMPDIR/mine.tsv"
refused_run "which is read by --train" 2 --train="$TEST_TMPDIR/mine.tsv" --test="$names" --save="$TEST_TMPDIR/mine.tsv" --epochs=1
check "the names are lost" cmp "$names" "$TEST_TMPDIR/mine.tsv"
refused_run "flag --names is -1, expected 0 or more" 2 --train="$names" --test="$names" --epochs=1 --names=-1
# Training that diverges saves nothing that is not a number.
refused_run "training has diverged" 1 --train="$names" --test="$names" --epochs=1 --learning_rate=1e30 --save="$TEST_TMPDIR/diverged"
check "a model of NaN" test ! -e "$TEST_TMPDIR/diverged"
exit $failed
