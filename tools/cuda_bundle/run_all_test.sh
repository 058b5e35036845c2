#!/bin/bash
# Rehearses run_all.py with programs that only play their parts: a crash, a hang, a sticky error, a program that does not
# start or does not end well, a library that is missing. Nothing may hide behind any of them.
source tools/scripts/expect.sh
folder=$TEST_TMPDIR/bundle
mkdir -p "$folder/bin" "$folder/lib/c"
cp tools/cuda_bundle/run_all.py "$folder/"

# program NAME, its text from the standard input
program() {
  cat > "$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}
program cuda_info <<'PLAYED'
#!/bin/bash
echo "cuda:0: played"
PLAYED

# Tests that do what their names say. FAULT chooses which there are.
program device_test <<'PLAYED'
#!/usr/bin/env python3
import os, sys, time
names = ["OpContract_cuda.add_f32", "OpContract_cuda.sub_f32", "Graphs.Plain"] + os.environ.get("FAULTS", "").split()
if "--gtest_list_tests" in sys.argv:
    suites = {}
    for name in names:
        suites.setdefault(name.split(".")[0], []).append(name.split(".")[1])
    for suite, tests in suites.items():
        print(suite + ".\n" + "\n".join("  " + test for test in tests))
    sys.exit()
chosen = [a.split("=")[1].split(":") for a in sys.argv if a.startswith("--gtest_filter")][0]
if "START" in os.environ and names[0] in chosen:
    os.abort()
sticky, failed, count = False, False, 0
for name in names:
    if name not in chosen and not any(part.endswith("*") and name.startswith(part[:-1]) for part in chosen):
        continue
    count += 1
    print(f"[ RUN      ] {name}", flush=True)
    if "Crash" in name:
        os.abort()
    if "Hang" in name:
        time.sleep(60)
    if "Sticky" in name:
        sticky = True
    bad = sticky or "Wrong" in name
    failed = failed or bad
    print(f"some words[{'  FAILED' if bad else '       OK'} ] {name} (3 ms)", flush=True)
print(f"[==========] {count} tests from 1 test suite ran. (1 ms total)", flush=True)
if "END" in os.environ:
    os.abort()
sys.exit(failed)
PLAYED
program peers_benchmark <<'PLAYED'
#!/bin/bash
exit ${BENCHMARK:-0}
PLAYED

# rehearse WHAT STATUS LAST-LINE VARIABLE=VALUE... ; $output is what was said
rehearse() {
  local what=$1 status=$2 last=$3
  shift 3
  output=$(env "$@" python3 "$folder/run_all.py" --out="$TEST_TMPDIR/out" --jobs=2 --limit=3 --parts="${parts:-suites}" 2>&1)
  expect "$what: status" "$status" $?
  expect "$what: last line" "$last" "$(tail -n 1 <<<"$output")"
}
rehearse "all well" 0 "3 passed, 0 failed" FAULTS=
rehearse "a wrong result" 1 "3 passed, 1 failed" FAULTS=Graphs.Wrong
expect_contains "a wrong result is named" "- Graphs.Wrong (alone: failed)" "$output"
rehearse "a crash" 1 "4 passed, 1 failed" "FAULTS=Graphs.Crash Graphs.Behind"
rehearse "a hang" 1 "4 passed, 1 failed" "FAULTS=Graphs.Hang Graphs.Behind"
expect_contains "the hang is told" "silent for 3 s" "$(cat "$TEST_TMPDIR/out/tests.log")"
many=$(for i in $(seq 100); do echo "OpContract_cuda.case$i"; done)
rehearse "a sticky error" 1 "102 passed, 2 failed" "FAULTS=OpContract_cuda.Sticky $(tr '\n' ' ' <<<"$many")"
expect_contains "what it spoils runs alone" "(alone: passed)" "$output"
rehearse "no start" 1 "2 passed, 1 failed" START=1 FAULTS=
rehearse "a bad end" 1 "3 passed, 3 failed" END=1 FAULTS=
parts=benchmarks,suites rehearse "benchmarks that break" 1 "3 passed, 2 failed" BENCHMARK=7 FAULTS=
parts=smoke rehearse "smoke" 1 "1 passed, 5 failed" FAULTS=CudaGraphTest.Plain
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
shift 2
BY_LOADER=1 exec "$@"
PLAYED
chmod 755 "$folder/lib/c/ld-linux-x86-64.so.2"
rehearse "an older C library" 0 "3 passed, 0 failed" FAULTS=
expect_contains "the loader" "by the loader" "$output"
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
