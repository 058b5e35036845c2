#!/bin/bash
# PROGRAM: learns from a part of the images, ends with a smaller error than principal components, saves its model and draws a picture.
set -u
program=$1
failed=0
check() {  # WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "$what" >&2; failed=1; }
}
model=$TEST_TMPDIR/autoencoder.safetensors picture=$TEST_TMPDIR/digits.png
output=$("$program" --data=examples/data/mnist --examples=2000 --epochs=6 --batch=16 --save="$model" --picture="$picture") || failed=1
echo "$output"
read -r error components <<<"$(tail -n 1 <<<"$output" |
  sed -n 's/^test mean squared error \([0-9.]*\), by principal components \([0-9.]*\)$/\1 \2/p')"
check "error ${error:-none}, expected one below that of principal components, ${components:-none}" \
  awk "BEGIN { exit !(${error:-9} < ${components:-0}) }"
# Three rows of twelve digits of 28x28, twice as large, with gaps of 4: 184 high, 724 wide.
size=$(od -An -tu1 -j16 -N8 "$picture" | tr -s ' ')
check "picture of $size, expected 724 x 184" test "$size" = " 0 0 2 212 0 0 0 184"
check "no PNG" test "$(head -c 8 "$picture" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a
check "no model" test -s "$model"

refused_run() {  # TEXT STATUS FLAG...: ends with that status and the text
  local text=$1 status=$2 said found
  shift 2
  said=$("$program" "$@" 2>&1 >"${out:-/dev/null}")
  found=$?
  [[ $found == "$status" ]] || { echo "$*: status $found, expected $status" >&2; failed=1; }
  grep -qF -e "$text" <<<"$said" || { printf 'of %s: expected "%s", found "%s"\n' "$*" "$text" "$said" >&2; failed=1; }
}
# Files that it would lose or cannot write, said before it reads anything.
refused_run "flags --save and --picture are both" 2 --data=none --save="$TEST_TMPDIR/both" --picture="$TEST_TMPDIR/both"
refused_run "flag --picture" 2 --data=none --picture=/dev/full
refused_run "flag --examples is -1, expected 0 (all) or more" 2 --data=examples/data/mnist --epochs=1 --examples=-1
mkdir "$TEST_TMPDIR/data"
cp -L examples/data/mnist/*.gz "$TEST_TMPDIR/data"
labels=$TEST_TMPDIR/data/train-labels-idx1-ubyte.gz
refused_run "which is read by --data" 2 --data="$TEST_TMPDIR/data" --epochs=1 --examples=64 --picture="$labels"
check "the labels are lost" cmp "$labels" examples/data/mnist/train-labels-idx1-ubyte.gz
exit $failed
