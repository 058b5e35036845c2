#!/bin/bash
# WORDS WORDS_MOVED TIDEPOOL LIBRARY: a program that knows nothing of Tidepool is recorded and advised on; moved to what
# the advice says, it asks malloc for hardly anything.
set -u
words=$1 moved=$2 tidepool=$3 library=$(readlink -f -- "$4")
failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
# record NAME PROGRAM: its output, and a record beside it.
record() { TIDEPOOL_RECORD="$folder/$1.rec" LD_PRELOAD=$library "$2"; }
before=$(record before "$words") || fail "words, recorded"
after=$(record after "$moved") || fail "words_moved, recorded"
[[ $before =~ ^[0-9]+$ && $before == "$after" ]] || fail "found '$before' and '$after' words, expected the same"

# Cycles are found without a mark, and what is to be written is said.
advice=$("$tidepool" advise "$folder/before.rec" --runs=1) || fail "tidepool advise"
grep -qE "^[1-9][0-9]* cycles, found by their period" <<<"$advice" || fail "no cycles in: $advice"
for expected in WorkspaceResource glibc raw; do
  [[ $advice == *"$expected"* ]] || fail "no word of $expected in: $advice"
done

# requests NAME: of malloc.
requests() { "$tidepool" memory "$folder/$1.rec" --json | sed -nE 's/^ *"requests": ([0-9]+),?$/\1/p' | head -n 1; }
had=$(requests before) has=$(requests after)
if [[ -z $had || -z $has ]] || ((had < 100000 || has * 20 > had)); then
  fail "found '$had' requests before and '$has' after, expected 100,000 and at most a twentieth"
fi
exit $failed
