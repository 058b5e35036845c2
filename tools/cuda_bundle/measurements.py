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


def kernel_times(arguments, env, log):
    """Microseconds by kernel of some of a training step's launches, where ncu is installed."""
    outcome, text = Outcome(), []
    profiler = shutil.which("ncu")
    if profiler is None:
        return outcome, ["no ncu"]
    program = os.path.join(HERE, "bin", "train_benchmark_on_cuda")
    for model in arguments.models.split(","):
        command = [profiler, "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--launch-skip", "1000",
                   "--launch-count", "240", "--csv", "--page", "raw"] + START + [program, "--serve", "--device=cuda"]
        done = run(command, env, arguments.limit, HERE, f"begin {model} 128 4 sgd examples/data/mnist\nsteps 40\n", arguments.limit)
        output = done.output
        times = {}
        begin = output.find('"ID"')
        for row in csv.DictReader(io.StringIO(output[begin:])) if begin >= 0 else []:
            try:
                nanoseconds = float(row["gpu__time_duration.sum"].replace(",", ""))
            except (KeyError, ValueError, AttributeError):
                continue  # the row of units, and what else is printed
            times.setdefault(row["Kernel Name"], []).append(nanoseconds / 1000)
        outcome.results[model] = ("passed" if times else "failed", 0, output)
        if not times:
            text.append(f"{model}: {done.words()}")
            log.write(f"=== ncu {model}: {done.words()}\n{output[-4000:]}\n")
        text += [f"{model}: {sum(map(len, times.values()))} launches of the middle of training, {sum(map(sum, times.values())):.0f} us", "",
                 "| kernel | launches | us each | us |", "| --- | --- | --- | --- |"]
        for name, each in sorted(times.items(), key=lambda entry: -sum(entry[1]))[:25]:
            text.append(f"| `{name[:120]}` | {len(each)} | {sum(each) / len(each):.1f} | {sum(each):.0f} |")
        text.append("")
    return outcome, text
