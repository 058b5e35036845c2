#!/bin/bash
# Runs tools/test and tools/train_digits in a copied tree with a stand-in for bazel.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools/scripts" "$tree/bazel-bin/tools" "$TEST_TMPDIR/elsewhere"
cp -L tools/test tools/train_digits "$tree/tools/"
cp -L tools/scripts/prepare.sh tools/scripts/count_test_results "$tree/tools/scripts/"
tree=$(readlink -f "$tree")
ln -s "$tree/tools/test" "$TEST_TMPDIR/elsewhere/test_link"
ln -s "$tree" "$TEST_TMPDIR/elsewhere/tree_link"
export CALLS=$TEST_TMPDIR/calls

cat >"$tree/tools/install_packages" <<'X'
#!/bin/sh
echo "install_packages $*" >>"$CALLS"
exit "${INSTALL_STATUS:-0}"
X
cat >"$tree/bazel-bin/tools/tidepool" <<'X'
#!/bin/sh
echo "tidepool $* in $PWD" >>"$CALLS"
X
chmod +x "$tree/tools/install_packages" "$tree/bazel-bin/tools/tidepool"
fake_command bazel <<'X'
#!/bin/sh
echo "bazel $* in $PWD" | sed 's/build_event_json_file=[^ ]*/build_event_json_file=F/' >>"$CALLS"
exit "${BAZEL_STATUS:-0}"
X

# run WHAT EXPECTED_STATUS EXPECTED_CALLS COMMAND...: `output` is then what it printed.
run() {
  local what=$1 expected_status=$2 expected_calls=$3 status
  shift 3
  : >"$CALLS"
  output=$(cd "$TEST_TMPDIR/elsewhere" && "$@" 2>/dev/null)
  status=$?
  expect "$what: exit status" "$expected_status" "$status"
  expect "$what: calls" "$expected_calls" "$(paste -sd, "$CALLS")"
}

bazel_test='bazel test --keep_going --build_event_json_file=F //...'
run "test, through a link" 0 "install_packages ,$bazel_test in $tree" ./test_link
expect "no tests" "0 passed, 0 failed" "$output"
run "test, flags" 0 "install_packages --check,$bazel_test --config=asan -- -//x in $tree" \
  tree_link/tools/test --config=asan --no-install -- -//x
fast='--config=fast //memory/... //ndarray/... //nn/... //tools/lint/... //tools/scripts/...'
run "test, fast" 0 "install_packages ,${bazel_test/\/\/.../$fast} --config=asan in $tree" \
  "$tree/tools/test" --fast --config=asan
BAZEL_STATUS=36 run "bazel fails" 1 "install_packages ,$bazel_test in $tree" "$tree/tools/test"
expect "bazel fails: last line" "0 passed, 1 failed" "$output"
INSTALL_STATUS=1 run "packages missing" 1 "install_packages --check" "$tree/tools/test" --no-install
expect "packages missing: last line" "0 passed, 1 failed" "$output"

unset TMPDIR
here=$TEST_TMPDIR/elsewhere
train="tidepool train --data $tree/examples/data/mnist --model lenet --epochs 10 --save"
build="bazel build -c opt //tools:tidepool in $tree"
run "train" 0 "install_packages ,$build,$train $here/digits.safetensors --epochs 1 in $here" \
  tree_link/tools/train_digits --epochs 1
TMPDIR=/x run "train, TMPDIR" 0 "install_packages --check,$build,$train /x/digits.safetensors in $here" \
  "$tree/tools/train_digits" --no-install
BAZEL_STATUS=1 run "train, does not build" 1 "install_packages ,$build" "$tree/tools/train_digits"
exit $((failures > 0))
