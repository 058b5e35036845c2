#!/bin/bash
# Runs compare_with_torch.py with the first python3 that there is: PyTorch is not among the packages, so as a rule it says that it skips.
set -eu
exec python3 "$1" "$2"
