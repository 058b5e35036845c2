#!/bin/bash
# TIDEPOOL: the command line, built with this workspace's backends, knows the abacus and trains on it.
set -u
tidepool=$1
failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

table=$("$tidepool" kernels) || fail "tidepool kernels"
# expect LINE: as a regular expression, spaces standing for any number of them.
expect() {
  grep -qE "^${1// / +}\$" <<<"$table" || fail "tidepool kernels does not print \"$1\""
}
expect "linked providers: abacus, .*quick_clip, reference.*"
expect "abacus: 256 MiB, one queue of kernels"
expect "matmul abacus f32 abacus"
expect "matmul abacus f64 - \(none linked\)"
expect "sum abacus f32 - \(none linked\)"
expect "clip host f32 quick_clip, .*"
expect "scaled_length host f32 reference"

# number N: big-endian, of four bytes, as IDX files have them.
number() {
  local shift
  for shift in 24 16 8 0; do printf "\\x$(printf %02x $(($1 >> shift & 255)))"; done
}

# Forty images of 28 by 28, whose class is how bright they are.
data=$(mktemp -d)
trap 'rm -rf -- "$data"' EXIT
for name in train t10k; do
  {
    number 2049
    number 40
    for ((i = 0; i < 40; ++i)); do printf "\\x$(printf %02x $((i % 10)))"; done
  } >"$data/$name-labels-idx1-ubyte"
  {
    number 2051
    number 40
    number 28
    number 28
    for ((i = 0; i < 40; ++i)); do printf "%784s" "" | tr ' ' "\\$(printf %03o $((i % 10 * 25)))"; done
  } >"$data/$name-images-idx3-ubyte"
done
train() { "$tidepool" train --data="$data" --epochs=2 --batch=10 --updater=sgd --device="$1" --threads=1; }
there=$(train abacus:0) || fail "tidepool train --device=abacus:0"
here=$(train host) || fail "tidepool train --device=host"
grep -q "workspace mode enabled, abacus:0" <<<"$there" || fail "no word of abacus:0 in: $there"
# losses LOG: of the epochs, one a line.
losses() { sed -nE 's/^epoch .* loss ([0-9.]+) .*/\1/p' <<<"$1"; }
paste <(losses "$there") <(losses "$here") |
  awk '{ apart = $1 - $2; if (NF != 2 || apart > 1e-3 || apart < -1e-3) exit 1 } END { exit NR != 2 }' ||
  fail "losses on abacus:0 and on the host: $(losses "$there"), $(losses "$here")"
grep -qE "^operators meant for a device that ran on the host: [1-9]" <<<"$there" || fail "no word of the host in: $there"
grep -qE "^of these by operator:.*(matmul|conv2d [0-9])" <<<"$there" && fail "the host did what the abacus has: $there"
refused=$(train abacus:1 2>&1) && fail "abacus:1 trained"
[[ $refused == *"there is no device abacus:1"* ]] || fail "no word of abacus:1 in: $refused"
exit $failed
