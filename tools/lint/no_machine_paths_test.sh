#!/bin/bash
# Nothing in the repository depends on one machine: no home or work folder as an absolute path, no
# host of a package registry or of a private network. Brackets keep this file from matching itself.
source tools/lint/source_tree.sh "$1"
folders='(^|[^A-Za-z0-9_.$%})/~])/([r]oot|[h]ome|[U]sers|[w]ork|[m]nt)(/|[^A-Za-z0-9_/.-]|$)'
registries='[p]ypi\.|[p]ythonhosted|(deb|snapshot|ftp)[.][d]ebian|[a]rchive\.ubuntu|[r]egistry\.[a-z0-9-]+\.(org|com|io|net)'
private='https?[:]//([0-9]+\.[0-9]|localhost|[a-z0-9.-]+\.(internal|local|corp|lan)\b)'
matches=$(source_files | tr '\n' '\0' |
  xargs -0 -r grep -nHIE -e "$folders" -e "$registries" -e "$private")
[[ -z $matches ]] && exit 0
printf '%s\n' "$matches" | cut -c 1-200
echo "expected no absolute path or host name that only some machines have"
exit 1
