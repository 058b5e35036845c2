"""What run_all.py measures: operators beside PyTorch's, training steps, and where a step's time goes."""
import csv
import io
import json
import os
import re
import shutil
import sys

from processes import HERE, START, Outcome, run, time_left


def rows_of(path):
    """Of a file of results, whose process may have ended before it was whole."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return {}, []
    for tail in ("", "\n]}"):
        try:
            whole = json.loads(text.rstrip().rstrip(",") + tail)
            return whole.get("context", {}), whole.get("benchmarks", [])
        except ValueError:
            pass
    return {}, []


def own_benchmarks(arguments, env, log, outcome):
    """The rows of peers_benchmark: behind one that breaks in further processes."""
    program = START + [os.path.join(HERE, "bin", "peers_benchmark")]
    chosen = ["--benchmark_filter=" + arguments.operators] if arguments.operators else []
    listed = run(program + ["--benchmark_list_tests=true"] + chosen, env, arguments.limit, HERE, errors=False)
    left = [line for line in listed.output.split("\n") if re.match(r"\w+(/\w+)*$", line)]
    if not listed.good() or not left:
        outcome.results["peers_benchmark"] = ("failed", 0, listed.output)
        log.write(f"=== peers_benchmark: its rows cannot be listed: {listed.words()}\n{listed.output[-4000:]}\n")
        return [], "its rows cannot be listed: " + listed.words()
    context, rows, output = {}, [], ""
    path = os.path.join(arguments.out, "benchmarks.json")
    while left and time_left() > 0:
        done = run(program + ["--benchmark_min_time=0.01", f"--benchmark_out={path}", "--benchmark_out_format=json",
                              "--benchmark_filter=^(" + "|".join(left) + ")$"], env, arguments.limit, HERE)
        output += done.output
        context, found = rows_of(path)
        rows += found
        names = {row["name"] for row in found}
        left = [name for name in left if name not in names]
        if left and done.why.startswith("ended with"):
            break
        if left:  # the first without a result is the one that broke
            outcome.results[f"benchmark {left[0]}"] = ("failed", 0, done.words())
            log.write(f"=== benchmark {left[0]}: {done.words()}\n{done.output[-4000:]}\n")
            left = left[1:]
        elif not done.good():
            outcome.results["end of peers_benchmark"] = ("failed", 0, done.words())
    for name in left:
        outcome.results[f"benchmark {name}"] = ("not run", 0, "")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"context": context, "benchmarks": rows}, file, indent=1)
    if rows:
        outcome.results["peers_benchmark"] = ("passed", 0, output)
    return rows, output


def benchmarks(arguments, env, log):
    """Ours, and PyTorch's under the same names, where the Python that runs this has it."""
    outcome, text = Outcome(), []
    rows, output = own_benchmarks(arguments, env, log, outcome)
    text += ["```", output.rstrip()[-9000:], "```", ""]
    without = {key: value for key, value in env.items() if key != "LD_LIBRARY_PATH"}
    path = os.path.join(arguments.out, "benchmarks.json")
    peer = run([sys.executable, "torch_operators.py", "--device=cuda", "--against", path], without, arguments.limit, HERE)
    outcome.results["PyTorch's operators"] = ("passed" if peer.good() else "failed", 0, peer.output)
    theirs = {}
    for line in peer.output.split("\n"):
        if re.match(r"\w+ [\d.]+( [\d.]+ [\d.]+)?$", line):
            theirs[line.split()[0]] = line.split()[1:]
    # Of the roofline: of a copy's bytes a second, and of the fastest product's operations.
    named = {row["name"].split("/")[0]: row for row in rows}
    copy = named.get("raw_copy", {}).get("bytes")
    product = max((row.get("flops", 0) for name, row in named.items() if name.startswith("raw_")), default=0)
    text += ["| operator | ours, us | of roofline | PyTorch, us | PyTorch / ours |", "| --- | --- | --- | --- | --- |"]
    for name in list(named) + [name for name in theirs if name not in named]:
        row, other = named.get(name, {}), theirs.get(name, ["", "", ""])
        moves, computes = row.get("bytes"), row.get("flops")
        share = moves / copy if moves and copy else computes / product if computes and product else None
        ours = f"{row['real_time']:.1f}" if "real_time" in row else ""
        text.append(f"| {name} | {ours} | {'' if share is None else f'{share:.2f}'} | {other[0]} | {other[2] if len(other) == 3 else ''} |")
    if not peer.good():
        text.append(peer.words() + "\n" + peer.output[-2000:])
        log.write(f"=== PyTorch's operators: {peer.words()}\n{peer.output[-4000:]}\n")
    return outcome, text


def training(arguments, env, log):
    """Training steps beside PyTorch, where the Python that runs this has it."""
    program, outcome, text = os.path.join(HERE, "bin", "train_benchmark_on_cuda"), Outcome(), []
    models = arguments.models.split(",")
    # TF32: PyTorch's convolutions have it by default, its products do not; ours have it where they are told to, both.
    kinds = {"eager": (False, "channels_last", "0"), "graphs": (True, "graphs", "0"), "graphs_tf32": (True, "graphs", "1")}
    for kind in arguments.training.split(","):
        graphs, mode, tf32 = kinds[kind]
        for model in models:
            command = START + [program, "--force", "--device=cuda", f"--graphs={str(graphs).lower()}", f"--models={model}", "--threads=4",
                       f"--batches={arguments.batches}", "--rounds=3", "--round_seconds=0.2", "--data=examples/data/mnist",
                       f"--torch_peer=env -u LD_LIBRARY_PATH {sys.executable} torch_training.py --mode={mode} --device=cuda"]
            name = f"training {model} {kind}"
            if time_left() <= 0:
                outcome.results[name] = ("not run", 0, "")
                continue
            done = run(command, {**env, "TIDEPOOL_CUDA_TF32": tf32}, arguments.limit, HERE, most=arguments.limit)
            outcome.results[name] = ("passed" if done.good() else "failed", 0, done.output)
            if done.good():
                text += [f"{name}", ""] + [line for line in done.output.split("\n") if line.startswith("|")] + [""]
            else:
                text += [f"{name}: {done.words()}: {done.output[-600:]}", ""]
                log.write(f"=== {name}: {done.words()}\n{done.output[-6000:]}\n")
    return outcome, text


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


def profile(profiler, options, program, arguments, env, **kwargs):
    """The process, and what the profiler told of each launch: its kernel, and numbers by metric."""
    command = [profiler, "--clock-control", "none"] + options + ["--csv", "--page", "raw"] + START + program
    done = run(command, env, arguments.limit, HERE, **kwargs)
    launches = []
    begin = done.output.find('"ID"')
    for row in csv.DictReader(io.StringIO(done.output[begin:])) if begin >= 0 else []:
        numbers = {}
        for metric in [TIME, *LIMITS]:
            try:
                numbers[metric] = float(row[metric].replace(",", ""))
            except (KeyError, ValueError, AttributeError):
                continue  # not asked for; the row of units, and what else is printed
        if TIME in numbers:
            launches.append((row["Kernel Name"], numbers))
    return done, launches


def kernel_limits(profiler, arguments, env, log, outcome):
    """Six kernels by how near they are to what bounds them: the longest launch of each operator."""
    text = ["| operator | kernel | us | " + " | ".join(LIMITS.values()) + " |", "| --- | --- | --- |" + " --- |" * len(LIMITS)]
    for name in KERNELS:
        if time_left() <= 0:
            outcome.results[f"kernel of {name}"] = ("not run", 0, "")
            continue
        program = [os.path.join(HERE, "bin", "peers_benchmark"), f"--benchmark_filter=^{name}$", "--benchmark_min_time=0.001"]
        done, launches = profile(profiler, ["--metrics", ",".join([TIME, *LIMITS]), "--launch-skip", "8", "--launch-count", "4"],
                                 program, arguments, env)
        outcome.results[f"kernel of {name}"] = ("passed" if launches else "failed", 0, done.output)
        if not launches:
            text.append(f"| {name} | {done.words()} |  |" + "  |" * len(LIMITS))
            log.write(f"=== ncu {name}: {done.words()}\n{done.output[-4000:]}\n")
            continue
        kernel, numbers = max(launches, key=lambda launch: launch[1][TIME])
        text.append(f"| {name} | `{kernel[:80]}` | {numbers[TIME] / 1000:.1f} | " +
                    " | ".join(f"{numbers[metric]:.0f}" if metric in numbers else "" for metric in LIMITS) + " |")
    return text + [""]


def kernel_times(arguments, env, log):
    """What bounds six kernels, and microseconds by kernel of some of a training step's launches, where ncu is installed."""
    outcome = Outcome()
    profiler = shutil.which("ncu")
    if profiler is None:
        return outcome, ["no ncu"]
    text = kernel_limits(profiler, arguments, env, log, outcome)
    program = [os.path.join(HERE, "bin", "train_benchmark_on_cuda"), "--serve", "--device=cuda"]
    for model in arguments.models.split(","):
        done, launches = profile(profiler, ["--metrics", TIME, "--launch-skip", "1000", "--launch-count", "240"], program, arguments, env,
                                 text=f"begin {model} 128 4 sgd examples/data/mnist\nsteps 40\n", most=arguments.limit)
        times = {}
        for kernel, numbers in launches:
            times.setdefault(kernel, []).append(numbers[TIME] / 1000)
        outcome.results[model] = ("passed" if times else "failed", 0, done.output)
        if not times:
            text.append(f"{model}: {done.words()}")
            log.write(f"=== ncu {model}: {done.words()}\n{done.output[-4000:]}\n")
        text += [f"{model}: {sum(map(len, times.values()))} launches of the middle of training, {sum(map(sum, times.values())):.0f} us", "",
                 "| kernel | launches | us each | us |", "| --- | --- | --- | --- |"]
        for name, each in sorted(times.items(), key=lambda entry: -sum(entry[1]))[:25]:
            text.append(f"| `{name[:120]}` | {len(each)} | {sum(each) / len(each):.1f} | {sum(each):.0f} |")
        text.append("")
    return outcome, text
