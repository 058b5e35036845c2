#!/bin/bash
# tools/which_target knows every header of the public folders, and says what is near to one that it does not know.
source tools/lint/source_tree.sh "$1"
status=0
expect() {  # WHAT EXPECTED FOUND
  [[ $3 == "$2" ]] && return
  printf '%s: expected %q, found %q\n' "$1" "$2" "$3"
  status=1
}
expect "a path" "tidepool/memory/workspace/workspace.h  //memory/workspace" "$(tools/which_target tidepool/memory/workspace/workspace.h)"
expect "a name" "tidepool/eval/roc.h  //eval:roc" "$(cd / && "$OLDPWD/tools/which_target" roc.h)"
expect "a slip" "tools/which_target: no header nn/netwrok.h; there is nn/network.h" \
  "$(tools/which_target nn/netwrok.h 2>&1 >/dev/null | cut -d, -f1)"
tools/which_target nn/netwrok.h 2>/dev/null && expect "a slip's status" 1 0

# Everything that is a library's is in the table; what is not is included by its own package alone.
known=$(tools/which_target | grep -oE '`tidepool/[^`]+\.h`' | tr -d '`' | sed 's|^tidepool/||')
while IFS= read -r header; do
  if ! grep -qxF -- "$header" <<<"$known" && grep -rqE --include=*.cc --include=*.h "#include \"tidepool/$header\"" memory ndarray backends nn eval; then
    echo "$header is included by its public path, and which_target does not know it"
    status=1
  fi
done < <(source_files | grep -E '^(memory|ndarray|backends|nn|eval)/.*\.h$' | grep -vE '/emulation/')
exit $status
