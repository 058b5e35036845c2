#!/usr/bin/env python3
"""Reads model and parameter files with Python's safetensors: names, types, shapes and values are the networks'.

    read_model_files.py EXPORT_MODEL_FILES     the program of //nn/testing:export_model_files

Without the package (pip install safetensors numpy) it says so and succeeds.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from safetensors import safe_open
except ImportError as error:
    print(f"skipped: {error}; pip install safetensors numpy")
    sys.exit(0)

TYPES = {"f32": numpy.float32, "f64": numpy.float64}


def expected_of(path):
    parameters = {}
    with open(path) as file:
        for line in file:
            name, dtype, total, *dims = line.split()
            parameters[name] = (TYPES[dtype], float(total), tuple(map(int, dims)))
    return parameters


def main():
    tensors = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        files = sorted(name for name in os.listdir(folder) if not name.endswith(".expected"))
        for name in files:
            path = os.path.join(folder, name)
            parameters = expected_of(path + ".expected")
            with safe_open(path, framework="numpy") as file:
                assert set(file.keys()) == set(parameters), f"{name}: {sorted(file.keys())}, expected {sorted(parameters)}"
                for key, (dtype, total, shape) in parameters.items():
                    tensor = file.get_tensor(key)
                    assert tensor.dtype == dtype, f"{name}: {key} is {tensor.dtype}, expected {dtype}"
                    assert tensor.shape == shape, f"{name}: {key} has shape {tensor.shape}, expected {shape}"
                    found = tensor.astype(numpy.float64).sum()
                    assert abs(found - total) <= 1e-9 * max(1, tensor.size), f"{name}: {key} adds up to {found}, expected {total}"
                    tensors += 1
                if name.endswith(".model"):
                    layers = json.loads(file.metadata()["network"])
                    assert layers, f"{name}: metadata {file.metadata()}"
        assert len(files) == 14, files
    print(f"{tensors} tensors of {len(files)} files are those of the networks")


if __name__ == "__main__":
    main()
