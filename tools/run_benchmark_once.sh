#!/bin/sh
# Runs each benchmark of a binary for as short a time as the library allows.
exec "$1" --benchmark_min_time=0.000001
