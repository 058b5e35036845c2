#!/bin/bash
# Rehearses run_all.py with programs that only play their parts: a crash, a hang, a sticky error, a program that does not
# start, does not end well, prints without end or leaves children, a library that is missing, time that is over. Nothing may
# hide behind any of them.
source tools/cuda_bundle/rehearsal.sh
rehearse "all well" 0 "3 passed, 0 failed" FAULTS=
rehearse "a wrong result" 1 "3 passed, 1 failed" FAULTS=Graphs.Wrong
expect_contains "a wrong result is named" "- Graphs.Wrong (alone: failed)" "$output"
expect_contains "a line a suite" "| Graphs | 1 | 1 | 0 | 0 | 0.0 |" "$output"
expect_contains "a line for operators" "| 2 operators of the contract | all |" "$output"
rehearse "a crash" 1 "4 passed, 1 failed" "FAULTS=Graphs.Crash Graphs.Behind"
rehearse "a hang" 1 "4 passed, 1 failed" "FAULTS=Graphs.Hang Graphs.Behind"
expect_contains "the hang is told" "silent for 3 s" "$(cat "$TEST_TMPDIR/out/tests.log")"
many=$(for i in $(seq 100); do echo "OpContract_cuda.case$i"; done)
rehearse "a sticky error" 1 "102 passed, 2 failed" "FAULTS=OpContract_cuda.Sticky $(tr '\n' ' ' <<<"$many")"
expect_contains "what it spoils runs alone" "(alone: passed)" "$output"
rehearse "no start" 1 "2 passed, 1 failed" START=1 FAULTS=
rehearse "a bad end" 1 "3 passed, 3 failed" END=1 FAULTS=
rehearse "words without end" 1 "4 passed, 1 failed" "FAULTS=Graphs.Endless Graphs.Behind"
expect_contains "the words are told" "printed 6" "$(cat "$TEST_TMPDIR/out/tests.log")"
begin=$SECONDS
rehearse "children that stay" 1 "5 passed, 1 failed" "FAULTS=Graphs.Children Graphs.Behind"
expect "children are ended" 1 $((SECONDS - begin < 40))
for how in crash hang; do
  parts=suites,benchmarks rehearse "a $how where the tests are listed" 1 "2 passed, 1 failed" LIST=$how FAULTS=
  expect_contains "a $how where the tests are listed is told" "the tests cannot be listed" "$output"
  parts=benchmarks,suites rehearse "a benchmark: $how" 1 "5 passed, 1 failed" BENCHMARK=$how FAULTS=
  expect_contains "a benchmark: $how: what is behind it" "| behind | 2.0 | 1.00 |" "$output"
  expect "a benchmark: $how: the results" "raw_copy behind" \
    "$(python3 -c 'import json, sys; print(*[r["name"] for r in json.load(open(sys.argv[1]))["benchmarks"]])' "$TEST_TMPDIR/out/benchmarks.json")"
done
parts=benchmarks rehearse "benchmarks" 0 "2 passed, 0 failed" FAULTS=
expect_contains "benchmarks beside PyTorch" "| raw_copy | 2.0 | 1.00 | 3.0 | 1.5 |" "$output"
begin=$SECONDS
limit=1 parts=training,suites rehearse "training that hangs with a child" 1 "3 passed, 15 failed" TRAINING=hang LONG=7531.$$ FAULTS=
expect "its child holds nothing" 1 $((SECONDS - begin < 60))
expect "its child is ended" "" "$(ps -eo args | grep -xF "sleep 7531.$$")"
begin=$SECONDS
minutes=0.05 parts=suites,benchmarks rehearse "time that is over" 1 "3 passed, 1 failed" FAULTS=Graphs.Hang
expect_contains "what was not run" "1 not run" "$output"
expect_contains "what was not run is named" "not run: the 0.05 minutes are over" "$(cat "$TEST_TMPDIR/out/report.md")"
expect "time is kept" 1 $((SECONDS - begin < 30))
parts=kernels rehearse "kernels" 0 "11 passed, 0 failed" "PATH=$TEST_TMPDIR/path:$PATH" FAULTS=
expect_contains "the longest launch and its limits" "| softmax | \`softmax_1\` | 3.0 | 91 | 20 | 50 | 64 |" "$output"
expect_contains "a step's kernels" "| \`step_1\` | 1 | 3.0 | 3 |" "$output"
for how in crash hang; do
  limit=1 parts=kernels rehearse "a profiler: $how" 1 "10 passed, 1 failed" "PATH=$TEST_TMPDIR/path:$PATH" NCU=$how FAULTS=
  expect_contains "a profiler: $how: what is behind it" "| sort_rows | \`sort_rows_1\` |" "$output"
done
parts=smoke rehearse "smoke" 1 "1 passed, 10 failed" FAULTS=CudaGraphTest.Plain
expect_contains "a part without tests failed" "- cuBLAS: FAILED" "$output"

program cuda_info <<'PLAYED'
#!/bin/bash
echo "libcublas.so.13: cannot open shared object file" >&2
exit 127
PLAYED
rehearse "a missing library" 1 "0 passed, 1 failed" FAULTS=
expect_contains "it is named" "libcublas.so.13" "$output"
program cuda_info <<'PLAYED'
#!/bin/bash
[[ -n $BY_LOADER ]] && echo "by the loader" && exit 0
echo "libc.so.6: version GLIBC_2.36 not found" >&2
exit 1
PLAYED
cat > "$folder/lib/c/ld-linux-x86-64.so.2" <<'PLAYED'
#!/bin/bash
if [[ $1 == --list ]]; then
  [[ -n $MISSING ]] && echo "	$MISSING => not found"
  exit
fi
echo "$2" > "$TEST_TMPDIR/library_path"
shift 2
BY_LOADER=1 exec "$@"
PLAYED
chmod 755 "$folder/lib/c/ld-linux-x86-64.so.2"
rehearse "an older C library" 0 "3 passed, 0 failed" FAULTS=
expect_contains "the loader" "by the loader" "$output"
mkdir -p "$folder/lib/absent"
touch "$folder/lib/absent/libcublas.so.13"
rehearse "no cuBLAS" 1 "3 passed, 1 failed" MISSING=libcublas.so.13 FAULTS=
expect_contains "no cuBLAS is told" "- libcublas.so.13: what needs it fails, the rest runs" "$output"
expect_contains "its stand-in is found" "/lib/absent" "$(cat "$TEST_TMPDIR/library_path")"
rehearse "another library" 1 "3 passed, 1 failed" MISSING=libother.so.1 FAULTS=
expect "no stand-in is needed" "" "$(grep /lib/absent "$TEST_TMPDIR/library_path")"
program cuda_info <<'PLAYED'
#!/bin/bash
echo "no CUDA device: played"
exit 3
PLAYED
rehearse "no device" 3 "0 passed, 0 failed (nothing was run)" FAULTS=
python3 "$folder/run_all.py" --parts=nonsense 2> "$TEST_TMPDIR/err"
expect "a wrong part" 2 $?
expect_contains "a wrong part is named" '--parts has "nonsense"' "$(cat "$TEST_TMPDIR/err")"
exit $((failures > 0))
