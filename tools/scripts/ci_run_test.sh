#!/bin/bash
# WORKSPACE: runs .ci/run in a copied tree whose commands are stand-ins: what it counts, and the turn that it was asked for.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/.ci" "$tree/tools" "$tree/examples/dependent_workspace"
cp -L "$(dirname -- "$(readlink -f -- "$1")")/.ci/run" "$tree/.ci/"

# stand_in NAME: a script of the tree, made of stdin.
stand_in() {
  cat >"$tree/tools/$1"
  chmod +x "$tree/tools/$1"
}
stand_in test <<'X'
#!/bin/sh
echo "${TESTS-5 passed, 0 failed, 2 skipped}"
X
stand_in install_packages <<'X'
#!/bin/sh
X
stand_in gates <<'X'
#!/bin/sh
[ "$1" = turn ] || exit "${GATE_STATUS:-0}"
echo "the turn has $TURN_SECONDS s"
exit "${TURN_STATUS:-0}"
X
# Refuses kernels of CUDA, as Bazel does without it.
fake_command bazel <<'X'
#!/bin/sh
case "$*" in
  *:fill) echo "not_switched_off_by_cuda_flag nvcc_found_under_CUDA_PATH"; exit 1 ;;
esac
X
# A toolkit, so that its three checks are made.
mkdir -p "$TEST_TMPDIR/cuda/bin"
export CUDA_PATH=$TEST_TMPDIR/cuda
printf '#!/bin/sh\n' >"$CUDA_PATH/bin/nvcc"
chmod +x "$CUDA_PATH/bin/nvcc"

# run WHAT EXPECTED_STATUS EXPECTED_LAST_LINE [arguments]
run() {
  local what=$1 expected_status=$2 expected=$3 status
  shift 3
  output=$("$tree/.ci/run" "$@" 2>&1)
  status=$?
  expect "$what: exit status, $output" "$expected_status" "$status"
  expect "$what: last line" "$expected" "$(tail -n 1 <<<"$output")"
}

run "everything passes" 0 "14 passed, 0 failed, 2 skipped"
[[ $output == *"the turn has"* ]] && expect "nobody asked for a turn" none "$output"
GATE_STATUS=1 run "gates fail" 1 "12 passed, 2 failed, 2 skipped"
TESTS="5 passed, 1 failed" run "a test fails" 1 "14 passed, 1 failed"
TESTS="no counts" run "tests end early" 1 "9 passed, 1 failed"
run "a turn" 0 "15 passed, 0 failed, 2 skipped" --turn
seconds=$(sed -n 's/^the turn has \([0-9]*\) s$/\1/p' <<<"$output")
expect "it has what is left of an hour, $seconds s" 1 "$((seconds > 3000 && seconds <= 3600))"
TURN_STATUS=1 run "a turn that fails" 1 "14 passed, 1 failed, 2 skipped" --turn
expect_contains "it is named" "FAILED: turn" "$output"
TURN_STATUS=75 run "a turn that was ended" 0 "14 passed, 0 failed, 3 skipped" --turn
run "another word" 2 ".ci/run: found '--turns', expected nothing or --turn" --turns
exit $((failures > 0))
