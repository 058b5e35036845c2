#!/bin/bash
# Pages of recordings in Chromium: browser_test.py. Skipped where it is not installed (apt-get install chromium).
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not installed"
  exit 0
fi
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  echo "skipped: no Chromium is installed; pages were not looked at"
  exit 0
fi
exec python3 memory/profile/testing/browser_test.py memory/profile/testing/sample_pages "$@"
