#!/bin/bash
# A scope that is a temporary is found by the compiler. Arguments: the source, then its headers.
set -u
source=$1
includes=$(printf '%s\n' "$@" | sed -n 's|\(.*/_virtual_includes/[^/]*\)/.*|-I\1|p' | sort -u)
compile() {
  # shellcheck disable=SC2086
  "${CXX:-c++}" -std=c++20 -fsyntax-only -Werror=unused-result -Werror=unused-value "$@" \
    $includes "$source" 2>&1
}
if ! output=$(compile); then
  echo "named scopes do not compile:"
  echo "$output" | head -20
  exit 1
fi
output=$(compile -DDISCARD)
failed=0
for line in $(sed -n '/\/\/ error$/=' "$source"); do
  grep -q ":$line:.*nodiscard" <<< "$output" && continue
  echo "compiles without a word: $(sed -n "${line}p" "$source")"
  failed=1
done
[[ $failed == 0 ]] || echo "$output" | head -20
exit $failed
