#!/bin/bash
# PROGRAM SOURCE: learns from digits and ends with its accuracy, tells of progress and memory, saves a model that names its layer; what
# it shows is in 40 lines.
set -u
program=$1 source=$2
failed=0
model=$TEST_TMPDIR/own_layer.safetensors
output=$("$program" --data=examples/data/mnist --epochs=2 --save="$model") || failed=1
echo "$output"
check() {  # WHAT COMMAND...
  local what=$1
  shift
  "$@" || { echo "$what" >&2; failed=1; }
}
accuracy=$(tail -n 1 <<<"$output" | sed -n 's/^test accuracy 0\.\([0-9]*\)$/\1/p')
[[ 10#${accuracy:-0} -ge 9000 ]] || { echo "accuracy 0.${accuracy:-none}, expected at least 0.9" >&2; failed=1; }
check "no progress" grep -q '^epoch  *2' <<<"$output"
check "no memory table" grep -q 'tensor allocations from the system' <<<"$output"
check "no model with that layer" grep -qa 'nearness' "$model"
lines=$(awk '/^struct Nearness/ { here = 1 } /^}  \/\/ namespace/ { here = 0 } here && NF' "$source" | wc -l)
check "$lines lines, expected at most 40" test "$lines" -le 40
exit $failed
