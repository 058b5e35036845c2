#!/bin/bash
# digits.py runs, and prints what `tidepool predict` prints of the same model and images; docs/c_api.md shows parts of it.
# Before it dlpack_test.py, beside it. Arguments: LIBRARY TOOL MODEL GUIDE PROGRAM IMAGES...
set -u
library=$1 tool=$2 model=$3 guide=$4 program=$5 images=$(dirname "$6")/t10k-images-idx3-ubyte.gz
# Another python3 may stand before Debian's, which has Debian's NumPy.
for python in python3 /usr/bin/python3 ""; do
  [[ -n $python ]] && "$python" -c 'import numpy' 2>/dev/null && break
done
if [[ -z $python ]]; then
  echo "skipped: no python3 has numpy (Debian: python3-numpy)"
  exit 0
fi
preload=()
# A library with AddressSanitizer in a program without it wants its runtime first.
if nm -D "$library" | grep -q __asan_init; then
  preload=(env LD_PRELOAD="$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0)
fi
TIDEPOOL_LIBRARY=$PWD/$library "${preload[@]}" "$python" -B "$(dirname "$program")/dlpack_test.py" || exit 1
TIDEPOOL_LIBRARY=$PWD/$library "${preload[@]}" "$python" -B "$program" "$model" "$images" >"$TEST_TMPDIR/python" || exit 1
"$tool" predict --model_file="$model" --images="$images" >"$TEST_TMPDIR/tool" || exit 1
if [[ $(wc -l <"$TEST_TMPDIR/tool") -lt 1000 ]]; then
  echo "tidepool predict printed $(wc -l <"$TEST_TMPDIR/tool") lines"
  exit 1
fi
diff "$TEST_TMPDIR/python" "$TEST_TMPDIR/tool" || exit 1
# Each indented line of Python in the guide is a line of the example.
status=0
while IFS= read -r line; do
  if ! grep -qF -- "${line#    }" "$program"; then
    echo "$guide shows a line that digits.py has not: $line"
    status=1
  fi
done < <(awk '/^## From Python/ { here = 1; next } /^## / { here = 0 } here && /^    / && !/^    TIDEPOOL/' "$guide")
exit $status
