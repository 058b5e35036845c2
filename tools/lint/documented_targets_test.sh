#!/bin/bash
# A row of a page's table that ends in a target names headers of that target.
source tools/lint/source_tree.sh "$1"
status=0
while IFS= read -r row; do
  target=$(grep -oE '`//[^`]+` \|$' <<<"$row" | tr -d '` |')
  package=${target#//}
  package=${package%%:*}
  name=${target##*[:/]}
  while IFS= read -r header; do
    awk -v name="name = \"$name\"," -v header="\"${header#"$package"/}\"" '
      /^[a-z_]+\(/ { here = 0 }
      index($0, name) { here = 1 }
      /hdrs = / { public = 1 }
      here && public && index($0, header) { found = 1 }
      /\]/ { public = 0 }
      END { exit !found }' "$package/BUILD.bazel" && continue
    echo "${row%%|*} $header is no header of $target"
    status=1
  done < <(grep -oE '`[a-z0-9_/]+\.h`' <<<"$row" | tr -d '`')
done < <(source_files | grep -E '^docs/.*\.md$' | tr '\n' '\0' |
  xargs -0 -r grep -nHE '^\|.*\.h`.*\| `//[^`]+` \|$')
exit $status
