#!/bin/bash
# Rehearses what run_all.py tells and writes: that a test that failed once has failed, that no output, however long or
# broken, loses the rest or makes a file too large, and that a full disk, a signal or an old file hides nothing.
source tools/cuda_bundle/rehearsal.sh
real_tests=$PWD/$1
limit=30  # nothing hangs here but what is to be ended otherwise
starts() { wc -l < "$TEST_TMPDIR/starts"; }
fresh() { rm -rf "$TEST_TMPDIR/starts" "$TEST_TMPDIR/out" "$TEST_TMPDIR"/Graphs.*; }
most=$((15 << 20))
# small WHAT: no file of results is above 15 MiB
small() { expect "$1: files above 15 MiB" "" "$(find "$TEST_TMPDIR/out" -type f -size +${most}c)"; }
rows() { python3 -c 'import json, sys; print(*[r["name"] for r in json.load(open(sys.argv[1]))["benchmarks"]])' "$TEST_TMPDIR/out/benchmarks.json"; }

# A failure costs its group no process, and the second run alone does not count. Fifteen tests in twelve groups.
fresh
rehearse "fails once" 1 "16 passed, 1 failed" "FAULTS=Graphs.Flaky $(printf 'Graphs.T%s ' {1..13})"
expect_contains "fails once: it is told" "- Graphs.Flaky (alone: passed)" "$output"
expect "fails once: processes: 12 groups, 2 of operators, 1 alone" 15 "$(starts)"
expect "fails once: is no crash" "" "$(grep crashed "$TEST_TMPDIR/out/tests.log")"

rehearse "a failure and a bad end" 1 "3 passed, 5 failed" END=1 FAULTS=Graphs.Wrong
expect_contains "a failure and a bad end: both are told" "=== end of the process of Graphs.Wrong: failed" "$(cat "$TEST_TMPDIR/out/tests.log")"

# The same with what GoogleTest itself prints.
fresh
mv "$folder/bin/device_test" "$folder/bin/played_test"
cp "$real_tests" "$folder/bin/device_test"
rehearse "GoogleTest" 1 "14 passed, 3 failed" "MARK=$TEST_TMPDIR/Graphs.mark" GTEST_COLOR=yes "XML_OUTPUT_FILE=$TEST_TMPDIR/own.xml"
expect "GoogleTest: no results of its own" "" "$(ls "$TEST_TMPDIR" | grep own.xml)"
expect_contains "GoogleTest: fails once" "- Real.Flaky (alone: passed)" "$output"
expect_contains "GoogleTest: fails" "- Real.Wrong (alone: failed)" "$output"
expect_contains "GoogleTest: with a parameter" "- Values/Parameters.Wrong/1 (alone: failed)" "$output"
expect_contains "GoogleTest: skipped" "14 passed, 3 failed, 1 skipped, 0 not run" "$output"
expect "GoogleTest: no crash" "" "$(grep crashed "$TEST_TMPDIR/out/tests.log")"
expect_contains "GoogleTest: what is said" "a sum that is wrong" "$(cat "$TEST_TMPDIR/out/tests.log")"
mv "$folder/bin/played_test" "$folder/bin/device_test"

# A disk that is full: files of at most 4 KiB.
fresh
talks=$(printf 'Graphs.Talk%s ' {1..30})
file_kib=4 parts=suites,benchmarks rehearse "full disk" 1 "5 passed, 31 failed" "FAULTS=$talks"
expect_contains "full disk: it is told" "tests.log is not whole: " "$output"
expect_contains "full disk: what was found" "- Graphs.Talk30 (alone: failed)" "$output"
expect_contains "full disk: what the log lacks" "=== Graphs.Talk30" "$output"
expect_contains "full disk: the next part" "| behind | 2.0 | 1.00 |" "$output"
expect "full disk: the report" 1 $(("$(stat -c %s "$TEST_TMPDIR/out/report.md")" > 1000))

# A file of a run before, and of a process before.
fresh
parts=benchmarks rehearse "results" 0 "2 passed, 0 failed"
echo old > "$TEST_TMPDIR/out/report.md"
parts=benchmarks rehearse "no new results" 1 "1 passed, 3 failed" BENCHMARK=start
expect "no new results: none are there" 1 "$(test -e "$TEST_TMPDIR/out/benchmarks.json"; echo $?)"
expect "no new results: none are told" "" "$(grep '| raw_copy | 2.0' <<<"$output")"
expect_contains "no new results: PyTorch's" "| raw_copy |  |  | 3.0 |" "$output"
expect "no new report of the run before" "" "$(grep old "$TEST_TMPDIR/out/report.md")"

# Files of results that are cut, or are something else.
fresh
parts=benchmarks rehearse "a row cut in its middle" 1 "2 passed, 1 failed" BENCHMARK=row
expect "a row cut in its middle: the others" "raw_copy behind" "$(rows)"
for how in null binary nameless; do
  parts=benchmarks,suites rehearse "results: $how" 1 "4 passed, 3 failed" BENCHMARK=$how FAULTS=
  expect_contains "results: $how: PyTorch's" "| raw_copy |  |  | 3.0 |" "$output"
done
expect_contains "results: what is wrong" "a row without one of the names" "$(cat "$TEST_TMPDIR/out/tests.log")"
parts=benchmarks rehearse "rows of 8 MiB" 0 "2 passed, 0 failed" BENCHMARK=long
expect "rows of 8 MiB: rows" "raw_copy broken behind" "$(rows)"
small "rows of 8 MiB"
parts=kernels rehearse "a long name of a kernel" 0 "11 passed, 0 failed" "PATH=$TEST_TMPDIR/path:$PATH" NCU=field
expect_contains "a long name of a kernel: before it" "| softmax | \`softmax_1\` |" "$output"
expect_contains "a long name of a kernel: its own" "| sort_rows | \`$(printf 'k%.0s' {1..80})\` | 9.0 |" "$output"

# Files are counted in bytes: a character has three here.
fresh
PYTHONPATH=$folder python3 - "$TEST_TMPDIR" <<'PLAYED'
import os, sys, results
folder = sys.argv[1] + "/out"
os.mkdir(folder)
report = results.Report(folder)
for i in range(12):
    report.write_log("\ufffd" * (1 << 20))
report.write("report.md", "\ufffd" * (12 << 20))
PLAYED
small "files"
for name in report.md tests.log; do
  expect_contains "$name: the rest" "(the rest is left out)" "$(tail -c 100 "$TEST_TMPDIR/out/$name" | tail -n 1)"
done

# Long output. 1000 tests print 20,000 bytes each that are no UTF-8, 24 print 20 MiB, of
# which 500 MiB of memory hold some.
fresh
rehearse "bytes" 1 "3 passed, 1000 failed" "FAULTS=$(printf 'OpContract_cuda.Binary%s ' {1..1000})"
small "bytes"
expect_contains "bytes: the log has them" "=== OpContract_cuda.Binary" "$(head -c 1000 "$TEST_TMPDIR/out/tests.log")"
memory_kib=500000 rehearse "much output" 0 "27 passed, 0 failed" "FAULTS=$(printf 'Graphs.Big%s ' {1..24})"
parts=training,suites rehearse "a flood of training" 0 "18 passed, 0 failed" TRAINING=flood FAULTS=
small "a flood of training"
expect_contains "a flood of training: its end" "| mlp | 1 |" "$output"
rehearse "a flood of the device" 0 "3 passed, 0 failed" INFO=flood FAULTS=
small "a flood of the device"
expect "a flood of the device: is cut" 1 $((${#output} < 1 << 17))

# Children that go on talking hold no slot: ten of them, each for 60 s, in a run of at most 54 s.
for kind in Chatter Setsid; do
  fresh
  limit=9 minutes=0.9 rehearse "$kind" 1 "13 passed, 10 failed" "FAULTS=$(printf "Graphs.$kind%s " {1..10})"
  expect_contains "$kind: why" "left behind what holds its output" "$(cat "$TEST_TMPDIR/out/tests.log")"
done
expect "children are ended" "" "$(ps -eo args | grep -F "$folder/bin/device_test" | grep Chatter)"

# Signals: what was found is written, nothing goes on, and what was not begun has not failed.
for name in TERM INT HUP; do
  fresh
  FAULTS="Graphs.Wrong Graphs.Slow" python3 - "$folder" "$TEST_TMPDIR/out" $name > "$TEST_TMPDIR/said" <<'PLAYED'
import os, signal, subprocess, sys, time
folder, out, name = sys.argv[1:]
number = getattr(signal, "SIG" + name)
signal.signal(number, signal.SIG_DFL)
run = subprocess.Popen([sys.executable, folder + "/run_all.py", "--out=" + out, "--jobs=1", "--limit=50", "--parts=suites,smoke"],
                       stdout=subprocess.PIPE, text=True)
def written(path, words):
    return os.path.exists(path) and words in open(path).read()
for i in range(1200):  # until it sits in the slow test, and the failure is found: both are in files before its end
    if written(os.environ["TEST_TMPDIR"] + "/starts", "Slow"):
        break
    time.sleep(0.05)
print("so far:", written(out + "/report.md", "so far: 1 passed, 1 failed"), written(out + "/tests.log", "=== Graphs.Wrong: failed"))
run.send_signal(number)
said = run.communicate(timeout=60)[0]
print("status", run.returncode)
print(said)
PLAYED
  said=$(cat "$TEST_TMPDIR/said")
  expect_contains "SIG$name: the report before" "so far: True True" "$said"
  expect_contains "SIG$name: status" "status 1" "$said"
  expect "SIG$name: last line" "1 passed, 1 failed" "$(tail -n 1 <<<"$said")"
  expect_contains "SIG$name: is told" "ended by SIG$name" "$(cat "$TEST_TMPDIR/out/report.md")"
  expect_contains "SIG$name: the suites" "not run in" "$(cat "$TEST_TMPDIR/out/report.md")"
  expect "SIG$name: nothing goes on" "" "$(ps -eo args | grep -F "$folder/bin/device_test" | grep Slow)"
done

# Time that is over: what was not begun has not failed.
minutes=0.2 parts=kernels limit=50 rehearse "time in the steps' kernels" 1 "6 passed, 1 failed" "PATH=$TEST_TMPDIR/path:$PATH" NCU=slow
expect_contains "time in the steps' kernels: not run" "4 not run" "$output"
minutes=0.15 parts=smoke limit=50 rehearse "time in smoke" 1 "0 passed, 6 failed" FAULTS=FillTest.Slow
expect_contains "time in smoke: not run" "- cuBLAS: not run" "$output"
minutes=0.1 parts=benchmarks limit=50 rehearse "time before PyTorch" 1 "1 passed, 0 failed" BENCHMARK=hang
expect_contains "time before PyTorch: not run" "PyTorch's operators: not run" "$output"

# Arguments that cannot be.
touch "$TEST_TMPDIR/file"
out=$TEST_TMPDIR/file rehearse "a file for --out" 2 "run_all.py: error: --out is \"$TEST_TMPDIR/file\", expected a folder, or a place for one: [Errno 17] File exists: '$TEST_TMPDIR/file'"
wrong() {  # OPTION EXPECTED-WORDS
  local said
  said=$(python3 "$folder/run_all.py" --out="$TEST_TMPDIR/out" "$1" 2>&1)
  expect "$1: status" 2 $?
  expect_contains "$1" "$2" "$said"
}
wrong --training=foo '--training has "foo", expected of eager, graphs, graphs_tf32'
wrong --models= '--models has "", expected of mlp, lenet'
wrong --batches=x '--batches is "x", expected numbers'
wrong --jobs=0 "--jobs is 0, expected a number above 0"
wrong --limit=nan "--limit is nan, expected seconds above 0"
wrong --minutes=-1 "--minutes is -1, expected minutes"
wrong --seconds=inf "--seconds is inf, expected seconds"
wrong "--operators=(" '--operators is "(", expected a regular expression'
exit $((failures > 0))
