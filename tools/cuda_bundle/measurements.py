"""What run_all.py measures: operators beside PyTorch's, training steps, and where a step's time goes."""
import contextlib
import csv
import json
import os
import re
import shutil
import sys
import tempfile

from processes import HERE, MOST_OUTPUT, START, run, time_left
from results import MOST_KEPT, MOST_SECTION, Ends, encoded, shortened

MOST_TABLE = 32 << 10  # bytes of the report, of one training


def rows_of(path, wanted):
    """Of a file of results, whose process may have ended within a row: the context, rows of `wanted` names by name, and what
    is wrong with the file ("" for nothing)."""
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_OUTPUT).decode("utf-8-sig", errors="replace")
    except OSError as error:
        return {}, {}, f"no file of results: {error.strerror}"
    try:
        whole, wrong = json.loads(text), ""
    except (ValueError, RecursionError) as error:
        whole, wrong = begun(text), f"the file of results is no JSON: {error}"
    if not isinstance(whole, dict) or not isinstance(whole.get("benchmarks"), list):
        return {}, {}, wrong or "the file of results has no list of benchmarks"
    rows = {}
    for row in whole["benchmarks"]:
        name = row.get("name") if isinstance(row, dict) else None
        if name in wanted and isinstance(row.get("real_time"), (int, float)):
            rows[name] = small(row)
        else:
            wrong = wrong or f"a row without one of the names, or without a time: {json.dumps(row)[:200]}"
    context = whole.get("context")
    return small(context) if isinstance(context, dict) else {}, rows, wrong


def begun(text):
    """What can be read of a file that ends anywhere: the context, and whole rows."""
    decode, found = json.JSONDecoder().raw_decode, {"benchmarks": []}
    try:
        context = re.search(r'"context"\s*:\s*', text)
        if context:
            found["context"] = decode(text, context.end())[0]
        rows = re.search(r'"benchmarks"\s*:\s*\[\s*', text)
        at = rows.end() if rows else len(text)
        while at < len(text):
            row, at = decode(text, at)
            found["benchmarks"].append(row)
            at = re.compile(r"[\s,]*").match(text, at).end()
    except (ValueError, RecursionError):
        pass  # here it ends
    return found


def small(row):
    """What a reader of results needs of a row: numbers, and words that are not too long."""
    numbers = ("bytes", "flops")
    kept = {key[:100]: value[:200] if isinstance(value, str) else value for key, value in list(row.items())[:64]
            if isinstance(value, (str, int, float)) and not (key in numbers and isinstance(value, str))}
    return {key: value for key, value in kept.items() if not isinstance(value, int) or abs(value) < 1 << 64}


def whole_results(context, rows):
    return json.dumps({"context": context, "benchmarks": list(rows.values())}, indent=1)


def own_benchmarks(arguments, env, report, outcome, folder):
    """The rows of peers_benchmark: behind one that breaks in further processes, with a file for each."""
    program = START + [os.path.join(HERE, "bin", "peers_benchmark")]
    chosen = ["--benchmark_filter=" + arguments.operators] if arguments.operators else []
    listed = run(program + ["--benchmark_list_tests=true"] + chosen, env, arguments.limit, HERE, errors=False)
    left = [line for line in listed.output.split("\n") if re.match(r"\w+(/\w+)*$", line)]
    if not listed.good() or not left:
        outcome.add("peers_benchmark", listed.became(False), 0, listed.output)
        report.write_log(f"=== peers_benchmark: its rows cannot be listed: {listed.words()}\n{shortened(listed.output, 4000)}\n")
        return {}, {}, "its rows cannot be listed: " + listed.words()
    context, rows, output, number = {}, {}, Ends(9000), 0
    while left and time_left() > 0:
        number += 1
        path = os.path.join(folder, f"{number}.json")
        done = run(program + ["--benchmark_min_time=0.01", f"--benchmark_out={path}", "--benchmark_out_format=json",
                              "--benchmark_filter=^(" + "|".join(left) + ")$"], env, arguments.limit, HERE, keep=MOST_KEPT)
        output.add(encoded(done.output))
        told, found, wrong = rows_of(path, left)
        if os.path.exists(path):
            os.remove(path)
        context = told or context
        rows.update(found)
        left = [name for name in left if name not in found]
        if rows:
            report.write("benchmarks.json", whole_results(context, rows))
        report.so_far("benchmarks", f"{len(rows)} rows, {len(left)} to come")
        if left and done.cut:
            break
        words = f"{done.words()}; {wrong}" if wrong else done.words()
        if left:  # the first without a result is the one that broke
            outcome.add(f"benchmark {left[0]}", "failed", 0, words)
            report.write_log(f"=== benchmark {left[0]}: {words}\n{shortened(done.output, 4000)}\n")
            left = left[1:]
        elif wrong or not done.good():
            outcome.add("end of peers_benchmark", done.became(False), 0, words)
            report.write_log(f"=== end of peers_benchmark: {words}\n{shortened(done.output, 4000)}\n")
    for name in left:
        outcome.add(f"benchmark {name}", "not run")
    if rows:
        outcome.add("peers_benchmark", "passed")
    return context, rows, output.text()


def peers(path, arguments, env, report, outcome):
    """PyTorch's rows, where the Python that runs this has it: name -> its time, ours, and their quotient; and what to tell."""
    if time_left() <= 0:
        outcome.add("PyTorch's operators", "not run")
        return {}, ["PyTorch's operators: not run"]
    without = {key: value for key, value in env.items() if key != "LD_LIBRARY_PATH"}
    against = ["--against", path] if os.path.exists(path) else []
    peer = run([sys.executable, "torch_operators.py", "--device=cuda"] + against, without, arguments.limit, HERE, keep=MOST_SECTION)
    outcome.add("PyTorch's operators", peer.became(), 0, peer.output)
    rows = {}
    for line in peer.output.split("\n"):
        if re.match(r"\w+ [\d.]+( [\d.]+ [\d.]+)?$", line):
            rows[line.split()[0]] = line.split()[1:]
    if peer.good():
        return rows, []
    report.write_log(f"=== PyTorch's operators: {peer.words()}\n{shortened(peer.output, 4000)}\n")
    return rows, [peer.words() + "\n" + peer.output[-2000:]]


def benchmarks(arguments, env, report, outcome, text):
    """Ours, and PyTorch's under the same names."""
    with tempfile.TemporaryDirectory() as folder:
        context, rows, output = own_benchmarks(arguments, env, report, outcome, folder)
        text += ["```", output.rstrip(), "```", ""]
        path = os.path.join(folder, "benchmarks.json")
        if rows:
            with contextlib.suppress(OSError):  # then PyTorch's stand alone
                with open(path, "w", encoding="utf-8") as file:
                    file.write(whole_results(context, rows))
        theirs, told = peers(path, arguments, env, report, outcome)
    # Of the roofline: of a copy's bytes a second, and of the fastest product's operations.
    named = {name.split("/")[0]: row for name, row in rows.items()}
    copy = named.get("raw_copy", {}).get("bytes")
    product = max((row.get("flops", 0) for name, row in named.items() if name.startswith("raw_")), default=0)
    text += ["| operator | ours, us | of roofline | PyTorch, us | PyTorch / ours |", "| --- | --- | --- | --- | --- |"]
    for name in list(named) + [name for name in theirs if name not in named]:
        row, other = named.get(name, {}), theirs.get(name, ["", "", ""])
        moves, computes = row.get("bytes"), row.get("flops")
        share = moves / copy if moves and copy else computes / product if computes and product else None
        ours = f"{row['real_time']:.1f}" if "real_time" in row else ""
        text.append(f"| {name} | {ours} | {'' if share is None else f'{share:.2f}'} | {other[0]} | {other[2] if len(other) == 3 else ''} |")
    text += told


# TF32: PyTorch's convolutions have it by default, its products do not; ours have it where they are told to, both.
TRAINING = {"eager": (False, "channels_last", "0"), "graphs": (True, "graphs", "0"), "graphs_tf32": (True, "graphs", "1")}
MODELS = ("mlp", "lenet", "residual", "lstm", "transformer")


def training(arguments, env, report, outcome, text):
    """Training steps beside PyTorch, where the Python that runs this has it."""
    program = os.path.join(HERE, "bin", "train_benchmark_on_cuda")
    for kind in arguments.training.split(","):
        graphs, mode, tf32 = TRAINING[kind]
        for model in arguments.models.split(","):
            command = START + [program, "--force", "--device=cuda", f"--graphs={str(graphs).lower()}", f"--models={model}", "--threads=4",
                       f"--batches={arguments.batches}", "--rounds=3", "--round_seconds=0.2", "--data=examples/data/mnist",
                       f"--torch_peer=env -u LD_LIBRARY_PATH {sys.executable} torch_training.py --mode={mode} --device=cuda"]
            name = f"training {model} {kind}"
            if time_left() <= 0:
                outcome.add(name, "not run")
                continue
            done = run(command, {**env, "TIDEPOOL_CUDA_TF32": tf32}, arguments.limit, HERE, most=arguments.limit, keep=MOST_TABLE)
            outcome.add(name, done.became(), 0, done.output)
            if done.good():
                rows = [line for line in done.output.split("\n") if line.startswith("|")]
                text += [name, "", shortened("\n".join(rows), MOST_TABLE), ""]
            else:
                text += [f"{name}: {done.words()}: {done.output[-600:]}", ""]
                report.write_log(f"=== {name}: {done.words()}\n{shortened(done.output, 6000)}\n")
            report.so_far("training", "\n".join(text))


# What says how far a kernel is from what the device can do, in the order of the report's columns.
TIME = "gpu__time_duration.sum"
LIMITS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "of the memory's bandwidth, %",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "of the multiprocessors' throughput, %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps active, %",
    "launch__registers_per_thread": "registers",
}
# Of peers_benchmark: a reduction of rows, one with two passes, one of columns, a transposition, a sort, a product by tiles.
KERNELS = ("softmax", "layer_norm", "sum_columns", "copy_transposed", "sort_rows", "conv_3x3_own")


def launches_of(output):
    """What the profiler told of each launch: its kernel, and numbers by metric. A line that cannot be read costs itself only."""
    csv.field_size_limit(MOST_OUTPUT)  # names of kernels are long
    columns, launches = None, []
    for line in output.replace("\0", "").split("\n"):
        begin = line.find('"ID"') if columns is None else 0
        if begin < 0:
            continue
        try:
            values = next(csv.reader([line[begin:]]), [])
        except csv.Error:
            continue
        if columns is None:
            columns = values
            continue
        row, numbers = dict(zip(columns, values)), {}
        for metric in [TIME, *LIMITS]:
            try:
                numbers[metric] = float(row[metric].replace(",", ""))
            except (KeyError, ValueError):
                continue  # not asked for; the row of units, and what else is printed
        if TIME in numbers:
            launches.append((row.get("Kernel Name", ""), numbers))
    return launches


def profile(profiler, options, program, arguments, env, **kwargs):
    """The process, and its launches."""
    command = [profiler, "--clock-control", "none"] + options + ["--csv", "--page", "raw"] + START + program
    done = run(command, env, arguments.limit, HERE, **kwargs)
    return done, launches_of(done.output)


def kernel_limits(profiler, arguments, env, report, outcome, text):
    """Six kernels by how near they are to what bounds them: the longest launch of each operator."""
    text += ["| operator | kernel | us | " + " | ".join(LIMITS.values()) + " |", "| --- | --- | --- |" + " --- |" * len(LIMITS)]
    for name in KERNELS:
        if time_left() <= 0:
            outcome.add(f"kernel of {name}", "not run")
            continue
        program = [os.path.join(HERE, "bin", "peers_benchmark"), f"--benchmark_filter=^{name}$", "--benchmark_min_time=0.001"]
        done, launches = profile(profiler, ["--metrics", ",".join([TIME, *LIMITS]), "--launch-skip", "8", "--launch-count", "4"],
                                 program, arguments, env)
        outcome.add(f"kernel of {name}", done.became(bool(launches)), 0, done.output)
        if not launches:
            text.append(f"| {name} | {done.words()} |  |" + "  |" * len(LIMITS))
            report.write_log(f"=== ncu {name}: {done.words()}\n{shortened(done.output, 4000)}\n")
            continue
        kernel, numbers = max(launches, key=lambda launch: launch[1][TIME])
        text.append(f"| {name} | `{kernel[:80]}` | {numbers[TIME] / 1000:.1f} | " +
                    " | ".join(f"{numbers[metric]:.0f}" if metric in numbers else "" for metric in LIMITS) + " |")
        report.so_far("kernels", "\n".join(text))
    text.append("")


def kernel_times(arguments, env, report, outcome, text):
    """What bounds six kernels, and microseconds by kernel of some of a training step's launches, where ncu is installed."""
    profiler = shutil.which("ncu")
    if profiler is None:
        text.append("no ncu")
        return
    kernel_limits(profiler, arguments, env, report, outcome, text)
    program = [os.path.join(HERE, "bin", "train_benchmark_on_cuda"), "--serve", "--device=cuda"]
    for model in arguments.models.split(","):
        if time_left() <= 0:
            outcome.add(model, "not run")
            text.append(f"{model}: not run")
            continue
        done, launches = profile(profiler, ["--metrics", TIME, "--launch-skip", "1000", "--launch-count", "240"], program, arguments, env,
                                 text=f"begin {model} 128 4 sgd examples/data/mnist\nsteps 40\n", most=arguments.limit)
        times = {}
        for kernel, numbers in launches:
            times.setdefault(kernel, []).append(numbers[TIME] / 1000)
        outcome.add(model, done.became(bool(times)), 0, done.output)
        if not times:
            text.append(f"{model}: {done.words()}")
            report.write_log(f"=== ncu {model}: {done.words()}\n{shortened(done.output, 4000)}\n")
        text += [f"{model}: {sum(map(len, times.values()))} launches of the middle of training, {sum(map(sum, times.values())):.0f} us", "",
                 "| kernel | launches | us each | us |", "| --- | --- | --- | --- |"]
        for name, each in sorted(times.items(), key=lambda entry: -sum(entry[1]))[:25]:
            text.append(f"| `{name[:120]}` | {len(each)} | {sum(each) / len(each):.1f} | {sum(each):.0f} |")
        text.append("")
        report.so_far("kernels", "\n".join(text))
