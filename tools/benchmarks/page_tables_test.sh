#!/bin/bash
# The pages have the tables that tools/benchmarks/page_tables writes, and it says where one has not.
source tools/scripts/expect.sh
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 0; }
tables=$PWD/tools/benchmarks/page_tables
expect "the pages" "" "$("$tables" --root="$PWD" --check 2>&1)"

root=$TEST_TMPDIR/root
mkdir -p "$root/docs/measurements"
cat >"$root/run.json" <<'X2'
{"context": {"date": "2026-01-02T03:04:05+00:00", "host_name": "secret", "executable": "/somewhere/secret", "num_cpus": 2, "load_avg": [0.5, 1, 2],
             "revision": "abc"},
 "benchmarks": [{"name": "F/ours/a", "run_name": "F/ours/a", "family_index": 0, "cpu_time": 2, "real_time": 3, "time_unit": "us", "hits": 4.0},
                {"name": "F/ours/b", "cpu_time": 5, "real_time": 6, "time_unit": "ns", "hits": 1.25},
                {"name": "F/theirs/a", "cpu_time": 7, "real_time": 8, "time_unit": "us", "hits": 0}]}
X2
cat >"$root/docs/measurements/tables.json" <<'X2'
{"t": {"run": "f", "name": "F/(?P<column>[^/]+)/(?P<row>.+)", "head": "what", "rows": {"b": "second", "a": "first"},
       "columns": [["ours, ns", "ours", "{cpu_time:,.0f}"], ["hits", "ours", "{hits:.1f}"], ["theirs, ns", "theirs", "{cpu_time:,.0f}"]]}}
X2
page=$root/docs/page.md
printf 'before\n\n<!-- table: t -->\nold\n<!-- end of table -->\n\nafter\n' >"$page"
run() { "$tables" --root="$root" "$@" 2>&1; }

expect "taken" "$root/docs/measurements/f.json" "$(run --take f "$root/run.json")"
expect "nothing of the machine's" "" "$(grep secret "$root/docs/measurements/f.json")"
output=$(run --check)
expect "what is old: status" 1 "$?"
expect_contains "what is old" "page.md:4: found 'old', expected ''" "$output"
expect "written" "wrote $page" "$(run)"
expect_contains "the table" "
| what | ours, ns | hits | theirs, ns |
|---|---|---|---|
| second | 5 | 1.2 |  |
| first | 2,000 | 4.0 | 7,000 |

Measured 2026-01-02, revision abc," "$(<"$page")"
expect_contains "the rest" "<!-- end of table -->

after" "$(<"$page")"
expect "again" "" "$(run)$(run --check)"

sed -i 's/4.0 | 7,000/4.1 | 7,000/' "$page"
expect_contains "a number by hand" "found '| first | 2,000 | 4.1 | 7,000 |', expected '| first | 2,000 | 4.0 | 7,000 |'" "$(run --check)"
run >"$TEST_TMPDIR/written"

# refuses WHAT EXPECTED ARGUMENTS...
refuses() {
  local what=$1 expected=$2 output
  shift 2
  output=$(run "$@")
  expect "$what: status" 2 "$?"
  expect_contains "$what" "$expected" "$output"
}
cp "$page" "$TEST_TMPDIR/page"
cp "$root/docs/measurements/tables.json" "$TEST_TMPDIR/tables"
sed -i 's/<!-- end of table -->//' "$page"
refuses "no end" "page.md:3: found no '<!-- end of table -->' behind it"
echo 'none' >"$page"
refuses "no page" "tables.json: no page has t"
sed 's/table: t/table: u/' "$TEST_TMPDIR/page" >"$page"
refuses "no such table" "page.md:3: no table 'u'"
cp "$TEST_TMPDIR/page" "$page"
sed -i 's/"a": "first"/"c": "third"/' "$root/docs/measurements/tables.json"
refuses "no such row" "found no benchmark of row 'c' of table 't'"
sed 's/{hits:.1f}/{misses}/' "$TEST_TMPDIR/tables" >"$root/docs/measurements/tables.json"
refuses "no such counter" "format '{misses}': found KeyError('misses')"
echo '{}' >"$root/run.json"
refuses "no run" "found no benchmarks, expected the JSON of a Google Benchmark" --take f "$root/run.json"
exit $((failures > 0))
