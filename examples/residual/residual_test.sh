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
exit $failed
