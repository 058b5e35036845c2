#!/bin/bash
# What libraries begin with is made by GCC, and has what //tools:library_headers names. That GCC takes it with the flags of libraries
# tells bazel build --copt=-Winvalid-pch --copt=-Werror=invalid-pch //memory/...
source tools/scripts/expect.sh
folder=tools/_precompiled
if [[ ! -e $folder/library_headers.h ]]; then
  echo "found no $folder/library_headers.h, expected what //tools:library_headers makes" >&2
  exit 1
fi
if [[ ! -s $folder/library_headers.h ]]; then
  echo "skipped: another compiler than GCC reads headers as they are"
  exit 0
fi
expect "the first headers" "#include <algorithm> #include <cstdint>" "$(head -n 2 $folder/library_headers.h | paste -sd' ')"
expect "GCC's mark" gpch "$(head -c 4 $folder/library_headers.h.gch/gcc.h)"
expect "what GCC finds" "$folder/library_headers.h.gch/gcc.h" "$(ls -d $folder/library_headers.h.gch/*)"
exit $((failures > 0))
