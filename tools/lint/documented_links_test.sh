#!/bin/bash
# Links between pages name files and headings that are there, and the names of ours in docs/coming_from_*.md (the second column)
# are in a header.
source tools/lint/source_tree.sh "$1"
shopt -s nullglob
status=0
pages=$(source_files | grep -E '\.md$')

# anchors PAGE: of its headings, as GitHub makes them.
anchors() {
  awk '/^#+ / {
    sub(/^#+ /, ""); gsub(/\[|\]\([^)]*\)|`/, ""); $0 = tolower($0)
    gsub(/[^a-z0-9_ -]/, ""); gsub(/ /, "-"); print
  }' "$1"
}

while IFS= read -r page; do
  while IFS= read -r link; do
    case $link in *://* | mailto:*) continue ;; esac
    file=${link%%#*} anchor=
    [[ $link == *'#'* ]] && anchor=${link#*#}
    path=$page
    [[ -n $file ]] && path=$(dirname -- "$page")/$file
    if [[ ! -e $path ]]; then
      echo "$page: no file $link"
      status=1
    elif [[ -n $anchor ]] && ! anchors "$path" | grep -qxF -- "$anchor"; then
      echo "$page: no heading for $link"
      status=1
    fi
  done < <(grep -vE '^    ' "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//')
done <<<"$pages"

words=$(source_files | grep -E '\.h$' | tr '\n' '\0' | xargs -0 grep -hoE '\b[A-Za-z_][A-Za-z0-9_]*\b' | sort -u)
while IFS=: read -r page name; do
  if ! grep -qxF -- "$name" <<<"$words"; then
    echo "$page: no header has $name"
    status=1
  fi
done < <(for page in docs/coming_from_*.md; do
  awk -F'|' '/^\|/ && NF > 4 { print $3 }' "$page" | grep -oE '`[^`]+`' | grep -vE '//|tidepool |/' |
    grep -oE '\b([A-Z][A-Za-z0-9]+|k[A-Z][A-Za-z0-9]+|[a-z]+_[a-z_]+)\b' | sort -u | sed "s|^|$page:|"
done)
exit $status
