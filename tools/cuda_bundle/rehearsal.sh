# shellcheck shell=bash
# Sourced by the tests of run_all.py: a bundle in $TEST_TMPDIR whose programs only play their parts. FAULTS, BENCHMARK, TRAINING
# and NCU choose what they do wrong; `starts` there has a line for each process of tests.
source tools/scripts/expect.sh
folder=$TEST_TMPDIR/bundle
mkdir -p "$folder/bin" "$folder/lib/c"
cp tools/cuda_bundle/*.py "$folder/"

# program NAME, its text from the standard input
program() {
  cat > "$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}
program cuda_info <<'PLAYED'
#!/bin/bash
echo "cuda:0: played"
[[ $INFO == flood ]] && yes "words of the device" | head -c $((18 << 20))
exit 0
PLAYED

# Tests that do what their names say. FAULTS chooses which there are.
program device_test <<'PLAYED'
#!/usr/bin/env python3
import os, sys, time
names = ["OpContract_cuda.add_f32", "OpContract_cuda.sub_f32", "Graphs.Plain"] + os.environ.get("FAULTS", "").split()
if "--gtest_list_tests" in sys.argv:
    if os.environ.get("LIST") == "crash":
        os.abort()
    if os.environ.get("LIST") == "hang":
        time.sleep(60)
    suites = {}
    for name in names:
        suites.setdefault(name.split(".")[0], []).append(name.split(".")[1])
    for suite, tests in suites.items():
        print(suite + ".\n" + "\n".join("  " + test for test in tests))
    sys.exit()
chosen = [a.split("=")[1].split(":") for a in sys.argv if a.startswith("--gtest_filter")][0]
if "START" in os.environ and names[0] in chosen:
    os.abort()
with open(os.environ["TEST_TMPDIR"] + "/starts", "a") as starts:
    starts.write(" ".join(chosen) + "\n")
sticky, failed, count = False, [], 0
for name in names:
    if name not in chosen and not any(part.endswith("*") and name.startswith(part[:-1]) for part in chosen):
        continue
    count += 1
    print(f"[ RUN      ] {name}", flush=True)
    if "Crash" in name:
        os.abort()
    if "Hang" in name:
        time.sleep(60)
    if "Endless" in name:
        while True:
            print("words " * 10000)
    if "Children" in name and os.fork() == 0:
        time.sleep(60)  # and holds the output open
        sys.exit()
    if ("Chatter" in name or "Setsid" in name) and os.fork() == 0:
        if "Setsid" in name:
            os.setsid()  # and is of no group that can be ended
        for i in range(300):
            print("word", flush=True)
            time.sleep(0.2)
        os._exit(0)
    if "Binary" in name:
        os.write(1, b"\xff" * 20000 + b"\n")
    if "Talk" in name:
        print("t" * 5900)
    if "Big" in name:
        print("b" * (20 << 20))
    if "Slow" in name:
        time.sleep(float(os.environ.get("SLOW", "60")))
    if "Sticky" in name:
        sticky = True
    bad = sticky or any(kind in name for kind in ("Wrong", "Binary", "Talk"))
    if "Flaky" in name:  # fails in the first process that runs it
        mark = os.environ["TEST_TMPDIR"] + "/" + name
        bad = not os.path.exists(mark)
        open(mark, "w").close()
    if bad:
        failed.append(name)
    print(f"some words{'[  FAILED  ]' if bad else '[       OK ]'} {name} (3 ms){'word' if 'Chatter' in name else ''}", flush=True)
print(f"[==========] {count} tests from 1 test suite ran. (1 ms total)", flush=True)
if "END" in os.environ:
    os.abort()
for name in failed:
    print(f"[  FAILED  ] {name}")
sys.exit(bool(failed))
PLAYED
# Three rows, of which BENCHMARK breaks the second.
program peers_benchmark <<'PLAYED'
#!/usr/bin/env python3
import os, re, sys, time
rows = ["raw_copy", "broken", "behind"]
options = dict(a.split("=", 1) for a in sys.argv[1:])
if "--benchmark_list_tests" in options:
    print("\n".join(rows))
    sys.exit()
how = os.environ.get("BENCHMARK")
if how == "start":
    os.abort()
file = open(options["--benchmark_out"], "w")
whole = {"null": b"null", "binary": b"\xff\xfe", "nameless": b'{"context": {}, "benchmarks": [{"real_time": 1.0}]}'}
if how in whole:
    os.write(file.fileno(), whole[how])
    sys.exit()
file.write('{"context": {},\n"benchmarks": [')
between = ""
for name in rows:
    if not re.match(options["--benchmark_filter"], name):
        continue
    if name == "broken" and how in ("crash", "row"):
        file.write(between + '\n{"name": "broken", "real_t' if how == "row" else "")
        file.flush()
        os.abort()
    if name == "broken" and how == "hang":
        file.flush()
        time.sleep(60)
    label = "l" * (8 << 20) if how == "long" else ""
    file.write(between + '\n{"name": "%s", "label": "%s", "real_time": 2.0, "bytes": 1e12}' % (name, label))
    between = ","
file.write("\n]}")
PLAYED
cat > "$folder/torch_operators.py" <<'PLAYED'
print("raw_copy 3.0 2.0 1.5")
PLAYED
# Its child goes on when it is ended, and holds its output.
program train_benchmark_on_cuda <<'PLAYED'
#!/bin/bash
[[ $TRAINING == hang ]] && { sleep "$LONG" & wait; }
[[ $TRAINING == flood ]] && yes "| mlp | $(printf '1 | %.0s' {1..30})" | head -c $((20 << 20))
echo "| mlp | 1 |"
PLAYED

# rehearse WHAT STATUS LAST-LINE VARIABLE=VALUE... ; $output is what was said
# limit, minutes, parts and out are options of this run; file_kib and memory_kib are limits of its processes.
rehearse() {
  local what=$1 status=$2 last=$3
  shift 3
  output=$(ulimit -S -f "${file_kib:-unlimited}" -v "${memory_kib:-unlimited}"; env "$@" python3 "$folder/run_all.py" --out="${out:-$TEST_TMPDIR/out}" --jobs=2 --limit="${limit:-3}" \
    --minutes="${minutes:-9}" --parts="${parts:-suites}" 2>&1)
  expect "$what: status" "$status" $?
  expect "$what: last line" "$last" "$(tail -n 1 <<<"$output")"
}
# A profiler, of which NCU breaks the run of one operator.
mkdir -p "$TEST_TMPDIR/path"
cat > "$TEST_TMPDIR/path/ncu" <<'PLAYED'
#!/usr/bin/env python3
import os, sys, time
operator = [a for a in sys.argv if a.startswith("--benchmark_filter")]
name = operator[0].split("=")[1].strip("^$") if operator else "step"
if name == "sum_columns" and os.environ.get("NCU") == "crash":
    os.abort()
if name == "sum_columns" and os.environ.get("NCU") == "hang":
    time.sleep(60)
if name == "step" and os.environ.get("NCU") == "slow":
    time.sleep(60)
print("==PROF== played")
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
print(",".join(f'"{column}"' for column in ["ID", "Kernel Name"] + metrics))
if name == "sort_rows" and os.environ.get("NCU") == "field":
    print('"0","' + "k" * 200000 + '","9,000"\n"0","a\0b","1"\na\rb\n"0","not closed')
print(",".join(f'"{unit}"' for unit in ["", ""] + ["ns"] + ["%"] * (len(metrics) - 1)))
for launch, nanoseconds in enumerate(["1,000", "3,000", "2,000"]):
    numbers = [nanoseconds, "91.4", "20.2", "50.0", "64"][:len(metrics)]
    print(",".join(f'"{number}"' for number in [str(launch), f"{name}_{launch}"] + numbers))
PLAYED
chmod 755 "$TEST_TMPDIR/path/ncu"
