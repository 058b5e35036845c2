#!/bin/bash
# Both readers read the same from a program's record: of arrays, of malloc, of a file cut short, and of one
# that is damaged.
set -eu
csv=$1
script=$2
shift 2
folder=${TEST_TMPDIR:?}
compare() {
  "$csv" "$1" > "$folder/cpp.csv"
  python3 "$script" "$1" > "$folder/python.csv"
  cmp "$folder/cpp.csv" "$folder/python.csv"
  [ "$(wc -l < "$folder/cpp.csv")" -gt "$2" ] || { echo "$1: too few events"; exit 1; }
}
TIDEPOOL_RECORD="$folder/arrays" "$1"
compare "$folder/arrays" 1000
grep -q "cycle_begin,0,2,0,allocated,workspace step" "$folder/cpp.csv"
TIDEPOOL_RECORD="$folder/quick" "$1" quick_exit
compare "$folder/quick" 1000
if [ $# -gt 1 ]; then
  TIDEPOOL_RECORD="$folder/malloc" LD_PRELOAD="$PWD/$2" python3 -c "x = [str(i) * 400 for i in range(9999)]"
  compare "$folder/malloc" 10000
fi
size=$(stat -c %s "$folder/arrays")
for cut in 41 500 $((size - 1000)); do
  head -c $((size - cut)) "$folder/arrays" > "$folder/cut"
  compare "$folder/cut" 0
done
for at in 600 $((size / 2)) $((size - 20)); do
  { head -c "$at" "$folder/arrays"; printf XXXX; tail -c +$((at + 5)) "$folder/arrays"; } > "$folder/damaged"
  [ "$(stat -c %s "$folder/damaged")" = "$size" ]
  compare "$folder/damaged" 0
done
echo "both read the same"
