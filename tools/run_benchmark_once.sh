#!/bin/sh
# Runs each benchmark of a binary for as short a time as the library allows. What the variable tells may be cut short too.
TIDEPOOL_BENCHMARK_ONCE=1 exec "$1" --benchmark_min_time=0.000001
