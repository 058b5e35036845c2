#!/bin/bash
# PROGRAM TEST.tsv TRAIN.tsv: learns, saves and ends with its accuracy; files that are none are refused by line and column.
set -u
program=$1 test=$2 train=$3
failed=0
check() {  # WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "$what" >&2; failed=1; }
}
model=$TEST_TMPDIR/names.safetensors
output=$("$program" --train="$train" --test="$test" --save="$model" --epochs=4) || failed=1
echo "$output"
accuracy=$(tail -n 1 <<<"$output" | sed -n 's/^test accuracy 0\.\([0-9]*\)$/\1/p')
check "accuracy below 0.80" test "${accuracy:-0}" -ge 8000
check "no model" test -s "$model"

refused() {  # TEXT LINES: a file of these lines is refused with the text
  printf '%b' "$2" >"$TEST_TMPDIR/bad.tsv"
  local said
  said=$("$program" --train="$TEST_TMPDIR/bad.tsv" --test="$test" 2>&1) && { echo "not refused: $2" >&2; failed=1; }
  grep -qF -e "$1" <<<"$said" || { printf 'expected "%s", found "%s"\n' "$1" "$said" >&2; failed=1; }
}
refused 'line 2, column 3: found "4nn\tf", expected a letter or a hyphen' 'Ann\tf\nJo4nn\tf\n'
refused 'line 1, column 6: found "x", expected f or m' 'Anna\tx\n'
refused 'line 1, column 4: found "", expected a name of 1 to 15 letters' 'Ann'
refused "no names" ''
# Which could wait for ever, or never end.
mkfifo "$TEST_TMPDIR/pipe"
for path in "$TEST_TMPDIR/pipe" /dev/null; do
  said=$(timeout 60 "$program" --train="$path" --test="$test" 2>&1) && { echo "not refused: $path" >&2; failed=1; }
  grep -qF -e "open $path: found a pipe or device" <<<"$said" || { printf 'of %s: found "%s"\n' "$path" "$said" >&2; failed=1; }
done

refused_run() {  # TEXT STATUS FLAG...: ends with that status and the text
  local text=$1 status=$2 said found
  shift 2
  said=$("$program" "$@" 2>&1 >"${out:-/dev/null}")
  found=$?
  [[ $found == "$status" ]] || { echo "$*: status $found, expected $status" >&2; failed=1; }
  grep -qF -e "$text" <<<"$said" || { printf 'of %s: expected "%s", found "%s"\n' "$*" "$text" "$said" >&2; failed=1; }
}
# Files that it would lose or cannot write, said before it reads anything.
cp -L "$test" "$TEST_TMPDIR/mine.tsv"
refused_run "which is read by --train" 2 --train="$TEST_TMPDIR/mine.tsv" --test="$test" --save="$TEST_TMPDIR/mine.tsv" --epochs=1
check "the names are lost" cmp "$test" "$TEST_TMPDIR/mine.tsv"
refused_run "flag --save" 2 --train=none --test="$test" --save="$TEST_TMPDIR/none/model"
refused_run 'argument "extra", expected a flag' 2 --train="$test" --test="$test" --epochs=1 extra
out=/dev/full refused_run "write standard output: No space left on device" 2 --train="$test" --test="$test" --epochs=1
exit $failed
