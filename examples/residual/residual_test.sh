#!/bin/bash
# PROGRAM: learns from 2000 images in three epochs and ends with its accuracy; saves its model; a wrong mode is refused.
set -u
program=$1
failed=0
model=$TEST_TMPDIR/residual.safetensors
output=$("$program" --data=examples/data/mnist --channels=8 --examples=2000 --epochs=3 --batch=32 --save="$model") || failed=1
echo "$output"
accuracy=$(tail -n 1 <<<"$output" | sed -n 's/^test accuracy 0\.\([0-9]*\)$/\1/p')
[[ 10#${accuracy:-0} -ge 9300 ]] || { echo "accuracy below 0.93" >&2; failed=1; }
[[ -s $model ]] || { echo "no model" >&2; failed=1; }
said=$("$program" --data=examples/data/mnist --workspace_mode=some 2>&1) && { echo "not refused" >&2; failed=1; }
grep -qF 'flag --workspace_mode is "some", expected enabled' <<<"$said" || { echo "found $said" >&2; failed=1; }

refused_run() {  # TEXT STATUS FLAG...: ends with that status and the text
  local text=$1 status=$2 said found
  shift 2
  said=$("$program" "$@" 2>&1 >"${out:-/dev/null}")
  found=$?
  [[ $found == "$status" ]] || { echo "$*: status $found, expected $status" >&2; failed=1; }
  grep -qF -e "$text" <<<"$said" || { printf 'of %s: expected "%s", found "%s"\n' "$*" "$text" "$said" >&2; failed=1; }
}
refused_run "flag --shift is -1, expected 0 to 27" 2 --data=examples/data/mnist --epochs=1 --examples=64 --shift=-1
refused_run "flag --shift is 28, expected 0 to 27" 2 --data=examples/data/mnist --epochs=1 --examples=64 --shift=28
refused_run "flag --examples is -1, expected 0 (all) or more" 2 --data=examples/data/mnist --epochs=1 --examples=-1
mkdir "$TEST_TMPDIR/data"
cp -L examples/data/mnist/*.gz "$TEST_TMPDIR/data"
labels=$TEST_TMPDIR/data/t10k-labels-idx1-ubyte.gz
refused_run "which is read by --data" 2 --data="$TEST_TMPDIR/data" --epochs=1 --examples=64 --save="$labels"
cmp "$labels" examples/data/mnist/t10k-labels-idx1-ubyte.gz || { echo "the labels are lost" >&2; failed=1; }
exit $failed
