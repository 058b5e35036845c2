#!/bin/bash
# PROGRAM FLAG...: runs of at least 200 steps of a program that trains, in every workspace mode: the saved models are the same bytes,
# and with workspaces no step asks the system for a tensor.
set -u
program=$1
shift
failed=0
epochs=$(sed -n 's/^--epochs=//p' <<<"$(printf '%s\n' "$@")")
fail() {
  echo "$*" >&2
  failed=1
}
for mode in enabled single separate none; do
  model=$TEST_TMPDIR/$mode.safetensors
  "$program" --workspace_mode=$mode --save="$model" "$@" >"$TEST_TMPDIR/$mode.txt" || fail "mode $mode failed"
  cat "$TEST_TMPDIR/$mode.txt"
  test -s "$model" || fail "mode $mode saved no model"
  cmp "$TEST_TMPDIR/enabled.safetensors" "$model" || fail "mode $mode ends with other bits than mode enabled"
  # "after the first epoch (2 steps)", "tensor allocations from the system     0.0000  (0 in all)"
  steps=$(sed -n 's/.*after the first epoch (\([0-9]*\) steps).*/\1/p' "$TEST_TMPDIR/$mode.txt")
  steps=$((${steps:-0} * epochs / (epochs - 1)))
  [[ $steps -ge 200 ]] || fail "mode $mode did $steps steps, expected at least 200"
  asked=$(sed -n 's/.*tensor allocations from the system .*(\([0-9]*\) in all)/\1/p' "$TEST_TMPDIR/$mode.txt")
  if [[ $mode == none ]]; then
    # Everything is made on the heap there, so that the count is seen to count.
    [[ ${asked:-0} -gt 0 ]] || fail "mode none asks the system for nothing: the count does not count"
  else
    [[ ${asked:-1} -eq 0 ]] || fail "mode $mode asks the system for tensors: ${asked:-no count}"
  fi
done
exit $failed
