#!/bin/bash
# Libraries do not format by absl::StrFormat and its kin: they end in a noexcept destructor that appends, so
# that the program is over where memory is (memory/io/append_format.h). Tests and benchmarks may.
source tools/lint/source_tree.sh "$1"
calls='absl::(StrFormat|StrAppendFormat|StreamFormat|Format|(F|SN)?PrintF)[(<]'
matches=$(source_files | grep -E '^(memory|ndarray)/.*\.(h|cc|cu|cuh|inc)$' |
  grep -Ev '(_test|_benchmark)\.(h|cc)$|/(testing|conformance|testdata)/' | tr '\n' '\0' |
  xargs -0 -r grep -nHE -e "$calls" -e 'absl/strings/str_format\.h')
[[ -z $matches ]] && exit 0
printf '%s\n' "$matches" | cut -c 1-200
echo "expected AppendFormat (memory/io/append_format.h) or absl::StrCat"
exit 1
