#!/bin/bash
# Runs tools/benchmarks/run in a copied tree with stand-ins for bazel and the programs.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools/benchmarks" "$tree/tools/scripts" "$tree/bazel-bin/tools/benchmarks" \
  "$tree/bazel-bin/x" "$TEST_TMPDIR/elsewhere"
cp -L tools/benchmarks/run "$tree/tools/benchmarks/"
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
echo "${0##*/} $*" | sed -e 's/ --revision=[^ ]*//' >>"$CALLS"
echo "table"
exit "${PROGRAM_STATUS:-0}"
X
  chmod +x "$tree/bazel-bin/$program"
done
fake_command bazel <<'X'
#!/bin/sh
case $1 in
  query) echo "$LIBTORCH" ;;
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

run "a Google Benchmark" 0 \
  "install_packages ,bazel build -c opt //x:y_benchmark,y_benchmark --benchmark_out=$results/y_benchmark.json --benchmark_out_format=json" \
  --output="$results" //x:y_benchmark
expect "its output" table "$(<"$results/y_benchmark.txt")"

BAZEL_STATUS=37 run "does not build" 37 "install_packages ,$build" --output="$results"
INSTALL_STATUS=1 run "packages missing" 1 "install_packages " --output="$results"
run "unknown name" 2 "install_packages " training
expect_contains "it is named" "found 'training'" "$output"

unset TMPDIR
run "default folder" 0 \
  "install_packages ,$build,$train --torch_peer=none --json=$(readlink -f "$TEST_TMPDIR")/elsewhere/benchmark_results/train_benchmark.json"
exit $((failures > 0))
