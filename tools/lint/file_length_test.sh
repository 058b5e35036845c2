#!/bin/bash
# A source file has at most 400 lines; longer ones hold more than one idea.
source tools/lint/source_tree.sh "$1"
source_files | grep -E '\.(h|cc|cu|cuh|bzl)$' | tr '\n' '\0' | xargs -0 -r awk '
  FNR == 401 { print FILENAME ": more than 400 lines; split it by idea"; long = 1; nextfile }
  END { exit long }'
