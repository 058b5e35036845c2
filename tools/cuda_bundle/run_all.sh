#!/bin/bash
# Runs every CUDA test and benchmark of the folder it lies in and prints
#
#   N passed, N failed
#
# and the table of benchmarks. Needs a CUDA device with its driver, and cuBLAS: from $CUDA_HOME, /usr/local/cuda
# or pip's nvidia packages. cuDNN is used where it is found there or by the system. Ends with 0 when nothing failed, also where there is no device: it says so.
#
#   run_all.sh [--seconds=N]     # at most that long for each program (600)
set -u

here=$(cd "$(dirname "$0")" && pwd)
seconds=600
for argument in "$@"; do
  case $argument in
    --seconds=*) seconds=${argument#--seconds=} ;;
    *) echo "usage: run_all.sh [--seconds=N]" >&2; exit 2 ;;
  esac
done

# Folders that may hold NVIDIA's libraries, best first.
library_folders() {
  [ -n "${CUDA_HOME:-}" ] && printf '%s\n' "$CUDA_HOME/lib64" "$CUDA_HOME/lib"
  printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib
  local python site
  for python in python3 python; do
    command -v "$python" > /dev/null || continue
    "$python" -c 'import site, sys; print("\n".join(site.getsitepackages() + [site.getusersitepackages()] + sys.path))' \
      2> /dev/null | sort -u | while read -r site; do
      [ -d "$site/nvidia" ] && find "$site/nvidia" -maxdepth 3 -type d -name lib
    done
  done
}
path=$here/lib
while read -r folder; do
  [ -d "$folder" ] && path=$path:$folder
done < <(library_folders)
export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

if ! "$here/bin/cuda_info"; then
  echo "0 passed, 0 failed (nothing was run)"
  exit 0
fi

missing=$(ldd "$here"/bin/* 2> /dev/null | awk '/not found/ { print $1 }' | sort -u)
if [ -n "$missing" ]; then
  echo "not found: $missing; install cuBLAS of CUDA 13 (pip install nvidia-cublas) or set CUDA_HOME" >&2
  exit 1
fi

cd "$here"  # tests find examples/data there
passed=0
failed=0
run() {  # name, then the command
  local name=$1 begin=$SECONDS
  shift
  if timeout "$seconds" "$@" > "$log" 2>&1; then
    passed=$((passed + 1))
    echo "passed  $name  ($((SECONDS - begin)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name  (status $?, $((SECONDS - begin)) s)"
    grep -E 'FAILED|Failure|error|seed' "$log" | tail -n 40
    tail -n 20 "$log"
  fi
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

for test in "$here"/bin/*_test; do
  run "$(basename "$test")" "$test"
done

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [ -x "$sanitizer" ]; then
  export TIDEPOOL_CONTRACT_CASES=0.02
  for tool in memcheck racecheck; do
    run "$tool device_test" "$sanitizer" --tool "$tool" --error-exitcode 9 "$here/bin/device_test"
  done
  unset TIDEPOOL_CONTRACT_CASES
else
  echo "no compute-sanitizer: memcheck and racecheck were not run"
fi

echo "$passed passed, $failed failed"
for benchmark in "$here"/bin/*_benchmark; do
  timeout "$seconds" "$benchmark" --benchmark_min_time=0.5 2>&1
done
[ "$failed" -eq 0 ]
