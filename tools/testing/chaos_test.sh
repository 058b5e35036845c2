#!/bin/bash
# A short run of chaos.py; a long one is started by hand: see there.
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not installed"
  exit 0
fi
exec python3 tools/testing/chaos.py --tidepool=tools/tidepool --spill_worker=tools/testing/spill_worker \
  --server=examples/digit_server/digit_server --rounds=18 --seed=1 "$@"
