#!/bin/bash
# --config=registry names what is there: each library is one of deps.bzl's, of a module at a version that the page names.
# That Bazel takes it is tried with Bazel 7 (tools/compat/debian_sid); Bazel 4 knows no modules.
source tools/scripts/expect.sh
on=third_party/registry/on/MODULE.bazel

names() { sed -n -E "s/^$2.*name = \"([^\"]+)\".*/\1/p" "$1" | sort; }
taken=$(names $on 'libraries\.from_module\(')
[[ -n $taken ]] || expect "libraries" "some" "none"

# Libraries of the system: those that a module can stand in for are made by system_repository.
known=$(awk '/^    define\(system_repository, "/ { gsub(/"/, ""); print $2 }
  /^        system_repository,$/ { getline; gsub(/[ ",]/, ""); print }' third_party/deps.bzl | tr -d ',)' | sort)
expect "libraries that deps.bzl has not" "" "$(comm -23 <(echo "$taken") <(echo "$known"))"
expect "libraries twice" "" "$(uniq -d <<<"$taken")"

modules=$(names $on 'bazel_dep\(' | grep -vx tidepool)
used=$(sed -n -E 's/^libraries\.from_module\(.*module = "@([^"]+)".*/\1/p' $on | sort)
expect "modules" "$used" "$modules"
while read -r name version; do
  [[ $name == tidepool ]] && continue
  grep -qF -- "\`$name\` $version" third_party/README.md || expect "third_party/README.md" "\`$name\` $version" "nothing"
done < <(sed -n -E 's/^bazel_dep\(name = "([^"]+)"(, version = "([^"]+)")?.*/\1 \3/p' $on)

# Both are the module that the root asks for, and the flag names the one that is not there by default.
for way in on off; do
  expect "$way" tidepool_libraries "$(sed -n -E 's/^module\(name = "([^"]+)".*/\1/p' third_party/registry/$way/MODULE.bazel)"
done
expect_contains "the default" 'path = "third_party/registry/off"' "$(<MODULE.bazel)"
expect_contains "the flag" 'common:registry --override_module=tidepool_libraries=%workspace%/third_party/registry/on' "$(<.bazelrc)"
exit $((failures > 0))
