#!/bin/bash
# Runs read_model_files.py with the first python3 that there is: where that has no safetensors it says that it skips.
set -eu
exec python3 "$1" "$2"
