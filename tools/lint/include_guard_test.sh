#!/bin/bash
# a/b_c.h is guarded by TIDEPOOL_A_B_C_H_, whose name closes the #endif too.
source tools/lint/source_tree.sh "$1"
# One process for all headers: several for each took a minute on a busy machine.
source_files | grep -E '\.(h|cuh)$' | grep -v '^examples/dependent_workspace/' | xargs -d '\n' awk '
  function finish() {
    if (file == "") return
    if (first != "#ifndef " guard || second != "#define " guard) {
      print file ": the first directives must be '\''#ifndef " guard "'\'' and '\''#define " guard "'\''"
      failed = 1
    } else if (last != "#endif  // " guard) {
      print file ": the last line must be '\''#endif  // " guard "'\''"
      failed = 1
    }
  }
  FNR == 1 {
    finish()
    file = FILENAME
    guard = toupper(file)
    gsub(/[\/.-]/, "_", guard)
    guard = "TIDEPOOL_" guard "_"
    first = second = ""
  }
  /^ *#/ && second == "" { if (first == "") first = $0; else second = $0 }
  { last = $0 }
  END { finish(); exit failed }'
exit $((PIPESTATUS[3] != 0))
