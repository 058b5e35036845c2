#!/bin/bash
# Runs tools/benchmarks/run in a copied tree with stand-ins for bazel and the programs.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools/benchmarks" "$tree/tools/scripts" "$tree/bazel-bin/tools/benchmarks" \
  "$tree/bazel-bin/x" "$TEST_TMPDIR/elsewhere"
cp -L tools/benchmarks/run tools/benchmarks/benchmark_table "$tree/tools/benchmarks/"
cp -L tools/scripts/prepare.sh "$tree/tools/scripts/"
tree=$(readlink -f "$tree")
export CALLS=$TEST_TMPDIR/calls

cat >"$tree/tools/install_packages" <<'X'
#!/bin/sh
echo "install_packages $*" >>"$CALLS"
exit "${INSTALL_STATUS:-0}"
X
for program in tools/benchmarks/train_benchmark x/y_benchmark; do
  cat >"$tree/bazel-bin/$program" <<'X'
#!/bin/sh
echo "${0##*/} $*" | sed -e 's/ --revision=[^ ]*//' -e 's/ --benchmark_context=revision=[^ ]*//' >>"$CALLS"
for argument; do
  case $argument in
    --benchmark_out=*)
      printf '{"context": {"executable": "./y_benchmark"}, "benchmarks": [{"name": "A", "run_name": "A", "cpu_time": %s, "time_unit": "us", "hits": 3}]}' \
        "${TIME:-2}" >"${argument#*=}" ;;
  esac
done
echo "table"
exit "${PROGRAM_STATUS:-0}"
X
  chmod +x "$tree/bazel-bin/$program"
done
fake_command bazel <<'X'
#!/bin/sh
case $1 in
  query) case $* in *libtorch*) echo "$LIBTORCH" ;; *) echo //x:y_benchmark ;; esac ;;
  *) echo "bazel $*" >>"$CALLS"; exit "${BAZEL_STATUS:-0}" ;;
esac
X
chmod +x "$tree/tools/install_packages"
export LIBTORCH=
results=$TEST_TMPDIR/results

# run WHAT EXPECTED_STATUS EXPECTED_CALLS ARGUMENTS...: `output` is then what it printed.
run() {
  local what=$1 expected_status=$2 expected_calls=$3 status
  shift 3
  rm -rf "$results"
  : >"$CALLS"
  output=$(cd "$TEST_TMPDIR/elsewhere" && "$tree/tools/benchmarks/run" "$@" 2>&1)
  status=$?
  expect "$what: exit status" "$expected_status" "$status"
  expect "$what: calls" "$expected_calls" "$(paste -sd, "$CALLS")"
}
build='bazel build -c opt //tools/benchmarks:train_benchmark'
train="train_benchmark --data=examples/data/mnist"
json="--json=$results/train_benchmark.json"

run "no libtorch" 0 "install_packages ,$build,$train --torch_peer=none $json" --output="$results"
expect "kept" table "$(<"$results/train_benchmark.md")"
expect_contains "it says where" "results are in $results" "$output"

LIBTORCH=@libtorch//:found run "libtorch, flags" 0 \
  "install_packages --check,$build //tools/benchmarks:train_benchmark_torch,$train --torch_peer=bazel-bin/tools/benchmarks/train_benchmark_torch $json --updater=adam" \
  --no-install --output="$results" train_benchmark -- --updater=adam

PROGRAM_STATUS=1 run "busy" 1 "install_packages ,$build,$train --torch_peer=none $json" --output="$results"
expect "nothing is kept" "" "$(ls "$results")"

idle=$TEST_TMPDIR/idle
echo "cpu 1 2 3 4 5 6 7 8 9 10" >"$idle"
export BUSY_STAT=$idle
y="y_benchmark --benchmark_out=$results/y_benchmark"
run "a Google Benchmark" 0 "install_packages ,bazel build -c opt //x:y_benchmark,$y.json.tmp --benchmark_out_format=json" \
  --output="$results" //x:y_benchmark
expect "its table" "| A | 2 us | hits 3 |" "$(tail -n 1 "$results/y_benchmark.md")"
expect "its numbers" "y_benchmark.json y_benchmark.md" "$(cd "$results" && echo *)"

# Before: twice as slow.
mkdir "$TEST_TMPDIR/before"
sed 's/"cpu_time": 2/"cpu_time": 4/' "$results/y_benchmark.json" >"$TEST_TMPDIR/before/y_benchmark.json"
run "beside an earlier run" 0 "install_packages ,bazel build -c opt //x:y_benchmark,$y.json.tmp --benchmark_out_format=json" \
  --output="$results" --before="$TEST_TMPDIR/before" //x:y_benchmark
expect_contains "the ratio" "| A | 2 us | 4 us | 2.00 | hits 3 |" "$(<"$results/y_benchmark.md")"
mkdir "$TEST_TMPDIR/empty"
run "nothing earlier" 0 "install_packages ,bazel build -c opt //x:y_benchmark,$y.json.tmp --benchmark_out_format=json" \
  --output="$results" --before="$TEST_TMPDIR/empty" //x:y_benchmark
expect_contains "it says so" "has nothing of y_benchmark" "$output"

mkdir -p "$TEST_TMPDIR/other/x"
{ echo '#!/bin/sh'; echo 'TIME=1 exec '"$tree/bazel-bin/x/y_benchmark"' "$@"'; } >"$TEST_TMPDIR/other/x/y_benchmark"
chmod +x "$TEST_TMPDIR/other/x/y_benchmark"
calls="install_packages ,bazel build -c opt //x:y_benchmark"
for round in 1 2; do
  calls+=",$y.$round.json.tmp --benchmark_out_format=json,$y.other.$round.json.tmp --benchmark_out_format=json"
done
run "in turns with another build" 0 "$calls" --output="$results" --rounds=2 --other="$TEST_TMPDIR/other" //x:y_benchmark
expect_contains "what is slower" "1 of 1 slower by more than 0.1
- A: 1 us before, 2 us now" "$(<"$results/y_benchmark.md")"
run "both" 2 "install_packages " --before="$TEST_TMPDIR/empty" --other="$TEST_TMPDIR/other" //x:y_benchmark
run "no such folder" 2 "install_packages " --before="$TEST_TMPDIR/nowhere" //x:y_benchmark

# Somebody works: the numbers go up while we look.
(while sleep 0.2; do echo "cpu $((++ticks * 100)) 2 3 4 5 6 7 8 9 10" >"$TEST_TMPDIR/busy.new" && mv "$TEST_TMPDIR/busy.new" "$TEST_TMPDIR/busy"; done) &
worker=$!
echo "cpu 1 2 3 4 5 6 7 8 9 10" >"$TEST_TMPDIR/busy"
export BUSY_STAT=$TEST_TMPDIR/busy
run "a busy machine" 1 "install_packages ,bazel build -c opt //x:y_benchmark" --output="$results" //x:y_benchmark
expect_contains "it says so" "expected a tenth at most" "$output"
expect "nothing is kept of it" "" "$(ls "$results")"
run "forced" 0 "install_packages ,bazel build -c opt //x:y_benchmark,$y.json.tmp --benchmark_out_format=json" \
  --output="$results" --force //x:y_benchmark
kill "$worker"
export BUSY_STAT=$idle

run "all" 0 "install_packages ,$build,$train --torch_peer=none $json,bazel build -c opt //x:y_benchmark,$y.json.tmp --benchmark_out_format=json" \
  --output="$results" all

echo '{"benchmarks": [{"name": "A", "time_unit": "us"}]}' >"$TEST_TMPDIR/bad.json"
expect_contains "a bad file" "bad.json: benchmark A: found KeyError('cpu_time'), expected cpu_time and time_unit" \
  "$(tools/benchmarks/benchmark_table "$TEST_TMPDIR/bad.json" 2>&1)"
printf 'x' >"$TEST_TMPDIR/bad.json"
expect_contains "no JSON" "expected the JSON of a Google Benchmark" "$(tools/benchmarks/benchmark_table "$TEST_TMPDIR/bad.json" 2>&1)"

# The table beside PyTorch has a row for each operator, and of each the least of the rounds.
expect "rows of the table" "$(sed -n '/^def operators/,$s/^ *yield "\([a-z0-9_]*\)".*/\1/p' tools/benchmarks/torch_operators.py | sort)" \
  "$(sed -n 's/^    "\([a-z0-9_]*\)": ".*/\1/p' tools/benchmarks/peers_table | sort)"
mkdir "$TEST_TMPDIR/peers"
echo '{"benchmarks": [{"run_name": "add", "aggregate_name": "decile", "real_time": 120.4}]}' >"$TEST_TMPDIR/peers/ours.1.1.json"
echo '{"benchmarks": [{"run_name": "add", "aggregate_name": "decile", "real_time": 95.5},
  {"run_name": "exp", "aggregate_name": "decile", "real_time": 2000.0}]}' >"$TEST_TMPDIR/peers/ours.1.2.json"
printf '# torch 9, AVX\nadd 130.0\nexp 1900.0\n' >"$TEST_TMPDIR/peers/torch.1.1.txt"
output=$(tools/benchmarks/peers_table --folder="$TEST_TMPDIR/peers" --print --threads=1 2>"$TEST_TMPDIR/missing")
expect "rows are missing" 1 "$?"
expect_contains "the least time" "| add | 95.5 | 130 | 1.36 |" "$output"
expect_contains "the row behind" "1 of 2 rows are ahead. Behind: exp (0.95)." "$output"
expect_contains "the missing row" "peers_table: no tanh with 1 threads, of Tidepool" "$(<"$TEST_TMPDIR/missing")"

BAZEL_STATUS=37 run "does not build" 37 "install_packages ,$build" --output="$results"
INSTALL_STATUS=1 run "packages missing" 1 "install_packages " --output="$results"
run "unknown name" 2 "install_packages " training
expect_contains "it is named" "found 'training'" "$output"

unset TMPDIR
run "default folder" 0 \
  "install_packages ,$build,$train --torch_peer=none --json=$(readlink -f "$TEST_TMPDIR")/elsewhere/benchmark_results/train_benchmark.json"
exit $((failures > 0))
