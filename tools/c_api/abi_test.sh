#!/bin/bash
# The library gives away the functions of exported_symbols.txt with their versions and nothing else, under its name; each of them is
# in tidepool.h, is called by the tests in C, and is in abi_1_0.c (compiled by Bazel), which holds signatures and layouts.
# Arguments: LIBRARY LIST HEADER ABI TEST...
library=$1 list=$2 header=$3 abi=$4
shift 4
status=0
fail() {
  echo "$*"
  status=1
}

# In lower case: of the library alone, listed for its relocations.
found=$(nm -D --with-symbol-versions --defined-only "$library" | awk '$2 ~ /^[B-Z]$/ { print $3 }' | LC_ALL=C sort)
if ! difference=$(diff <(LC_ALL=C sort "$list") <(echo "$found")); then
  fail "exported symbols (< listed, > found); a removed one breaks programs, a new one is added to the list and to abi_*.c:"
  echo "$difference"
fi
nm -D --defined-only "$library" | grep -q ' A TIDEPOOL_1.0' || fail "no version TIDEPOOL_1.0"
# Such a library cannot be opened by a program that runs: there is no place for its threads' variables.
readelf -d "$library" | grep -q STATIC_TLS && fail "an object has the TLS model initial-exec or local-exec"
name=$(readelf -d "$library" | sed -n 's/.*Library soname: \[\(.*\)\]/\1/p')
[[ $name == libtidepool.so.1 ]] || fail "the library's name is [$name], expected libtidepool.so.1"

declared=$(sed 's,//.*,,' "$header" | grep -oE '\btidepool_[a-z0-9_]+\(' | tr -d '(' | LC_ALL=C sort -u)
listed=$(sed 's/@.*//' "$list" | LC_ALL=C sort -u)
[[ $declared == "$listed" ]] || fail "the header's functions are others than the list's: $(diff <(echo "$declared") <(echo "$listed"))"
signatures=$(tr -s '\n ' ' ' <"$abi" | sed 's/= & /= \&/g')
while IFS= read -r function; do
  grep -q "= &$function;" <<<"$signatures" || fail "$abi does not hold the signature of $function"
  grep -qE "\b$function\(" "$@" || fail "no test in C calls $function"
done <<<"$listed"
exit $status
