#!/bin/bash
# PROGRAM TRACE TITLE FIGURE: the figure of the guide is what the program draws of that trace.
if ! diff <("$1" "$2" "$3") "$4"; then
  echo "$4 is another picture; make it anew: bazel run //examples/how_it_works:plan_figure -- TRACE TITLE" >&2
  exit 1
fi
