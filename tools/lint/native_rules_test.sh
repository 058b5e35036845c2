#!/bin/bash
# C++ and shell rules come from //tools:rules.bzl, so that releases of Bazel which have none built in are served too.
source tools/lint/source_tree.sh "$1"
status=0
while IFS= read -r file; do
  case $file in
    third_party/deps.bzl | tools/rules.bzl | tools/compat/*) continue ;;
  esac
  if grep -nHE '\bnative\.(cc|sh|py|java)_' "$file"; then
    echo "$file: a native rule; load it from //tools:rules.bzl"
    status=1
  fi
  [[ $file == *BUILD.bazel ]] || continue
  for rule in cc_binary cc_import cc_library cc_shared_library cc_test sh_binary sh_library sh_test; do
    if grep -qE "^\s*$rule\(" "$file" && ! grep -qE "^load\(\"(//tools:rules|@rules_).*\"$rule\"" "$file"; then
      echo "$file: $rule is not loaded; load it from //tools:rules.bzl"
      status=1
    fi
  done
done < <(source_files | grep -E '(^|/)BUILD\.bazel$|\.bzl$')
exit $status
