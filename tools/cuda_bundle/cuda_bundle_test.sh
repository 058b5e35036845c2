#!/bin/bash
# The folder, packed, is below 60 MiB, holds what it promises, and says cleanly when there is no device.
set -eu -o pipefail

folder=$1
fail() { echo "FAILED: $*" >&2; exit 1; }

# The programs hold the same kernels: packed with a dictionary longer than a program, as docs/cuda.md says, they count once.
if command -v xz > /dev/null; then
  bytes=$(tar -chf - -C "$folder" . | xz --lzma2=preset=0,dict=128MiB | wc -c)
  echo "$folder: $((bytes >> 20)) MiB packed"
  [ "$bytes" -lt $((60 << 20)) ] || fail "$bytes bytes packed; at most 60 MiB"
fi
for name in bin/device_test bin/cuda_info bin/peers_benchmark run_all.py; do
  [ -x "$folder/$name" ] || fail "$name is missing"
done
# Every function of cuBLAS's has a stand-in: with these in its place each program is bound and starts.
absent=$(printf '%s:' "$folder"/lib/absent/libcublas*)
for program in device_test peers_benchmark train_benchmark_on_cuda; do
  LD_LIBRARY_PATH=$folder/lib LD_PRELOAD=$absent LD_BIND_NOW=1 "$folder/bin/$program" --help > /dev/null 2> "$TEST_TMPDIR/said" || true
  if grep "symbol lookup error\|cannot open" "$TEST_TMPDIR/said"; then fail "$program without cuBLAS"; fi
done
[ -f "$folder/examples/data/mnist/train-images-idx3-ubyte.gz" ] || fail "the digits are missing"
# Nothing but the C library, NVIDIA's, and what lies beside it.
LD_LIBRARY_PATH=$folder/lib ldd "$folder"/bin/* | awk '$2 == "=>" { print $1, $3 }' | sort -u |
  while read -r name path; do
    case $name in
      libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libcu* | libnv*) ;;
      *) case $path in "$folder"/*) ;; *) fail "$name comes from $path" ;; esac ;;
    esac
  done

status=0
output=$("$folder/run_all.py" --parts=smoke,suites --out="$TEST_TMPDIR/out") || status=$?
echo "$output"
if ! "$folder/run_all.py" --wrong 2> /dev/null; then echo "a wrong argument is refused"; else fail "--wrong"; fi
case $status:$output in
  3:*"no CUDA device: "*"0 passed, 0 failed"*) ;;
  0:*" passed, 0 failed"*) ;;
  *) fail "unexpected output" ;;
esac
