#!/bin/bash
# a/b_c.h is guarded by TIDEPOOL_A_B_C_H_, whose name closes the #endif too.
source tools/lint/source_tree.sh "$1"
status=0
while IFS= read -r file; do
  guard=$(printf 'TIDEPOOL_%s_' "$file" | tr 'a-z/.-' 'A-Z___')
  if [[ $(grep -E -m 2 '^ *#' "$file") != "#ifndef $guard"$'\n'"#define $guard" ]]; then
    echo "$file: the first directives must be '#ifndef $guard' and '#define $guard'"
    status=1
  elif [[ $(tail -n 1 "$file") != "#endif  // $guard" ]]; then
    echo "$file: the last line must be '#endif  // $guard'"
    status=1
  fi
done < <(source_files | grep -E '\.(h|cuh)$' | grep -v '^examples/dependent_workspace/')
exit $status
