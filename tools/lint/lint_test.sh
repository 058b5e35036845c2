#!/bin/bash
# Each lint test is seen failing on a tree that breaks its rule, and passing on one that does not.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/a"
touch "$tree/WORKSPACE.bazel"
# Not spelled out, or this file would break the rule itself.
home=/"home" root=/"root" scheme=http:/

# check SCRIPT EXPECTED_STATUS EXPECTED_PART
check() {
  local output status
  output=$("tools/lint/$1" "$tree/WORKSPACE.bazel" 2>&1)
  status=$?
  expect "$1: fails, $output" "$2" "$((status != 0))"
  expect_contains "$1" "$3" "$output"
}

seq 400 >"$tree/a/long.cc"
check file_length_test.sh 0 ""
seq 401 >"$tree/a/long.cc"
check file_length_test.sh 1 "a/long.cc: more than 400 lines"
rm "$tree/a/long.cc"

printf '// x\n#ifndef TIDEPOOL_A_B_C_H_\n#define TIDEPOOL_A_B_C_H_\n#endif  // TIDEPOOL_A_B_C_H_\n' >"$tree/a/b_c.h"
check include_guard_test.sh 0 ""
printf '// x\n#ifndef TIDEPOOL_A_B_C_H_\n#define TIDEPOOL_A_B_C_H_\n#endif\n' >"$tree/a/b_c.h"
check include_guard_test.sh 1 "a/b_c.h: the last line must be"
echo '#pragma once' >"$tree/a/b_c.h"
check include_guard_test.sh 1 "a/b_c.h: the first directives must be '#ifndef TIDEPOOL_A_B_C_H_'"
rm "$tree/a/b_c.h"

mkdir -p "$tree/docs" "$tree/a/b"
printf 'x_library(\n    name = "b",\n    srcs = ["own.h"],\n    hdrs = [\n        "x.h",\n        "y.h",\n    ],\n)\n' >"$tree/a/b/BUILD.bazel"
printf 'x_library(\n    name = "c",\n    hdrs = ["z.h"],\n)\n' >>"$tree/a/b/BUILD.bazel"
for row in '| `a/b/x.h`, `a/b/y.h` | `//a/b` |' '| it | `a/b/y.h` | `//a/b:b` |' '| `a/b/z.h` (Z) | `//a/b:c` |' \
  '| `a/b/w.h` | text |'; do
  echo "$row" >"$tree/docs/page.md"
  check documented_targets_test.sh 0 ""
done
for row in '| `a/b/x.h`, `a/b/z.h` | `//a/b` |' '| `a/b/z.h` | `//a/b:b` |' '| `a/b/own.h`, `a/b/z.h` | `//a/b` |' \
  '| `a/b/z.h` | `//a/b:d` |' '| `a/b/z.h` | `//a/c` |'; do
  echo "$row" >"$tree/docs/page.md"
  check documented_targets_test.sh 1 "docs/page.md:1: a/b/z.h is no header of //a/"
done
rm -r "$tree/docs" "$tree/a/b"

mkdir -p "$tree/b"
printf 'load("//tools:rules.bzl", "cc_test", "sh_test")\nsh_test(\n)\n[\n    cc_test(\n' >"$tree/b/BUILD.bazel"
check native_rules_test.sh 0 ""
printf 'cc_library(\n)\n' >>"$tree/b/BUILD.bazel"
check native_rules_test.sh 1 "b/BUILD.bazel: cc_library is not loaded"
echo '    native.cc_test(' >"$tree/b/x.bzl"
check native_rules_test.sh 1 "b/x.bzl: a native rule"
rm -r "$tree/b"

mkdir -p "$tree/docs"
echo 'void FoundHere(int k_word);' >"$tree/a/found.h"
printf '# A page\n\n## Its `first`, heading\n\n    [code](none.md)\n[up](../WORKSPACE.bazel) [on](https://x.y/z)\n' >"$tree/docs/page.md"
printf '[a](page.md) [b](page.md#its-first-heading)\n[c](#own)\n# Own\n' >"$tree/docs/other.md"
printf '| there | here | |\n|---|---|---|\n| `Gone` | `FoundHere`, `k_word` | |\n' >"$tree/docs/coming_from_x.md"
check documented_links_test.sh 0 ""
echo '[a](nopage.md)' >"$tree/docs/other.md"
check documented_links_test.sh 1 "docs/other.md: no file nopage.md"
echo '[a](page.md#second)' >"$tree/docs/other.md"
check documented_links_test.sh 1 "docs/other.md: no heading for page.md#second"
rm "$tree/docs/other.md"
printf '| there | here | |\n|---|---|---|\n| `FoundHere` | `Gone` | |\n' >"$tree/docs/coming_from_x.md"
check documented_links_test.sh 1 "docs/coming_from_x.md: no header has Gone"
rm -r "$tree/docs" "$tree/a/found.h"

mkdir -p "$tree/docs" "$tree/ndarray/ops"
printf '| NumPy | PyTorch | here | difference |\n|---|---|---|---|\n| `a` | - | `One`, `NDArray::Two` | also `Four` |\n' >"$tree/docs/arrays.md"
echo '  NDArray Two() const;' >"$tree/ndarray/ndarray.h"
printf 'NDArray One(const NDArray& x);\nvoid OneInto(const NDArray& x, NDArray& z);\n// NDArray Three(NDArray x);\n' >"$tree/ndarray/ops/a.h"
echo 'void Check(const NDArray& x);' >"$tree/ndarray/ops/checks.h"
echo 'inline std::vector<NDArray> Four(int n) { return {}; }' >"$tree/ndarray/creation.h"
check documented_operators_test.sh 0 ""
echo 'NDArray Three(const NDArray& x);' >"$tree/ndarray/ops/b.h"
check documented_operators_test.sh 1 "docs/arrays.md: Three is not in the table of names"
rm "$tree/ndarray/ops/a.h"
echo 'NDArray Four(const NDArray& x);' >"$tree/ndarray/ops/b.h"
check documented_operators_test.sh 1 "docs/arrays.md: One of the table of names is in no header"
rm -r "$tree/docs" "$tree/ndarray"

mkdir -p "$tree/memory/testing" "$tree/other"
for line in 'AppendFormat(&out, "%d", 1);' 'std::snprintf(text, sizeof text, "%d", 1);' 'absl::FormatDuration(window)' \
  'myabsl::StrFormatter()' \
  '// Not absl::StrFormat, which may end the program.'; do
  echo "$line" >"$tree/memory/text.cc"
  check no_sink_formatting_test.sh 0 ""
done
for line in 'out = absl::StrFormat("%d", 1);' 'absl::StrAppendFormat(&out, "%d", 1);' 'absl::PrintF("%d", 1);' \
  'absl::SNPrintF(text, 9, "%d", 1);' '#include "absl/strings/str_format.h"'; do
  echo "$line" >"$tree/memory/text.cc"
  check no_sink_formatting_test.sh 1 "memory/text.cc:1:$line"
  rm "$tree/memory/text.cc"
  echo "$line" | tee "$tree/memory/testing/text.cc" "$tree/memory/text_test.cc" >"$tree/other/text.cc"
  check no_sink_formatting_test.sh 0 ""
done

mkdir -p "$tree/tools/c_api" "$tree/ndarray"
printf '%s\n' 'constexpr Term kTerms[] = {' '    {"; Dup() makes"' '     " it dense", ""},' '    {"Any", "any"},' '};' >"$tree/tools/c_api/error_terms.cc"
printf '%s\n' 'Throw("a view; Dup() "' '      "makes it dense; or Any");' >"$tree/ndarray/view.cc"
check translated_messages_test.sh 0 ""
echo 'Throw("a view; Copy() makes it dense; or Any");' >"$tree/ndarray/view.cc"
check translated_messages_test.sh 1 'tools/c_api/error_terms.cc: no message of the library has "; Dup() makes it dense"'
echo 'Throw("a view; Dup() makes it dense; or Any");' >"$tree/ndarray/view_test.cc"
check translated_messages_test.sh 1 'tools/c_api/error_terms.cc: no message of the library has "; Dup() makes it dense"'
rm -r "$tree/tools" "$tree/ndarray"

for line in "see /$home:target, \$x$root and docs$home" "user: ~$home" "$scheme/example.org/localhost" \
  'debian.org packages' 'kernel/registry.h' "s$root/x" "$home-made"; do
  echo "$line" >"$tree/a/text.md"
  check no_machine_paths_test.sh 0 ""
done
for line in "$home/me/file" "run in $root" "\"$root\"" "see ($home/x)" \
  "$scheme/py""pi.org/x" "$scheme/10.0.0.1/x" \
  "$scheme/cache.build.internal/" "$scheme/deb"".debian.org/debian"; do
  echo "$line" >"$tree/a/text.md"
  check no_machine_paths_test.sh 1 "a/text.md:1:$line"
done
exit $((failures > 0))
