#!/bin/bash
# Runs the program once with the smallest numbers and no peer, and makes it refuse.
source tools/scripts/expect.sh
program=tools/benchmarks/train_benchmark
json=$TEST_TMPDIR/result.json
small=(--rounds=1 --steps=1 --warm_up=2 --torch_peer=none)

table=$($program "${small[@]}" --force --updater=sgd,adam --json="$json" --revision=r1)
expect "exit status" 0 $?
expect "rows" 16 "$(grep -c '| peer: absent |' <<<"$table")"
for part in "- peer: absent" "- revision: r1" "- compilation mode: " "| lenet | 128 | 2 | adam |"; do
  expect_contains "table" "$part" "$table"
done
expect "JSON entries" 16 "$(grep -c '"real_time":' "$json")"

others=$($program "${small[@]}" --force --models=residual,lstm,transformer --batches=4 --threads=1)
expect "exit status of the other networks" 0 $?
expect "rows of the other networks" 3 "$(grep -c '| peer: absent |' <<<"$others")"

# The same networks in PyTorch, where there is one: numbers of parameters are compared.
torch=tools/benchmarks/torch_training.py
if python3 -c 'import torch' 2>/dev/null; then
  beside=$($program "${small[@]}" --force --models=mlp,lenet,residual,lstm,transformer --batches=4 --threads=1 \
    --torch_peer="python3 $torch --mode=channels_last" 2>&1)
  expect "exit status beside PyTorch" 0 $?
  expect "rows beside PyTorch" 5 "$(grep -c '^| .* | 4 | 1 | sgd |' <<<"$beside")"
else
  expect "without PyTorch" "torch_training.py: no torch; pip install torch" "$(python3 $torch 2>&1)"
fi

# refuses WHAT STATUS PART [FLAGS]
refuses() {
  local what=$1 status=$2 part=$3 output
  shift 3
  output=$($program "${small[@]}" "$@" 2>&1)
  expect "$what: exit status" "$status" $?
  expect_contains "$what" "$part" "$output"
}
refuses "no such peer" 2 "cannot start /no/such/peer" --force --torch_peer=/no/such/peer
refuses "no such model" 2 'model is "alexnet"' --force --models=alexnet
refuses "no such updater" 2 'updater is "rmsprop"' --force --updater=rmsprop
refuses "no data" 2 "no/such/folder" --force --data=no/such/folder
refuses "batch" 2 'flag --batches has "x"' --force --batches=32,x
refuses "argument" 2 'argument "lenet"' --force lenet

# A process that never rests is noticed.
(while :; do :; done) &
spinner=$!
refuses "busy" 1 "other processes used" --models=mlp --batches=32 --threads=1
kill $spinner
exit $((failures > 0))
