#!/bin/bash
# CSV_TRAINING ANSWERING_SERVICE: a table is learned within its budget, with a page of its memory, and the model answers.
set -u
training=$1 service=$2
failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
awk 'BEGIN {
  print "petal_length,petal_width,colour,species"
  split("red white blue", colours, " ")
  split("setosa versicolor virginica", names, " ")
  for (i = 0; i < 640; ++i) {
    species = i % 3
    printf "%.2f,%.2f,%s,%s\n", 1 + 2 * species + i * 7 % 10 / 10, 0.2 + species + i * 3 % 10 / 10, colours[1 + i % 7 % 3],
      names[1 + species]
  }
}' >"$folder/flowers.csv"

said=$("$training" "$folder/flowers.csv" "$folder/memory.html" "$folder/flowers.model") || fail "csv_training: $said"
# number PATTERN: what its bracket holds, of the first line that has it.
number() { sed -nE "s/$1/\\1/p" <<<"$said" | head -n 1; }
budget=$(number '.*its budget is ([0-9]+).*')
took=$(number '.*took ([0-9]+).*')
if [[ -z $budget || -z $took ]] || ((took > budget)); then
  fail "found a budget of '$budget' and '$took' bytes taken, expected at most the budget, in: $said"
fi
loss=$(number '^loss ([0-9.]+)$')
awk -v loss="${loss:-9}" 'BEGIN { exit !(loss < 0.1) }' || fail "a loss of '$loss', expected less than 0.1, in: $said"
grep -q "<title>Flowers" "$folder/memory.html" || fail "no page of that title"
grep -qE "(src|href)=[\"']?https?:" "$folder/memory.html" && fail "the page asks a network"

said=$("$service" "$folder/flowers.model") || fail "answering_service: $said"
[[ $said == "1600 answers, 0 refused"* ]] || fail "no 1600 answers in: $said"
grep -qE '^tidepool_inference_requests_total\{.*outcome="answered"\} 1600$' <<<"$said" || fail "no count of 1600 requests in: $said"

# What a user gets wrong first is told by its place.
sed -i '3s/^[0-9.]*/wide/' "$folder/flowers.csv"
said=$("$training" "$folder/flowers.csv" "$folder/memory.html" "$folder/flowers.model" 2>&1) && fail "a word for a number was taken"
[[ $said == *'flowers.csv: line 3, column 1: "petal_length": found "wide", expected a number'* ]] || fail "no place in: $said"
exit $failed
