#!/bin/bash
# Runs tools/install_packages in a copied tree with stand-ins for dpkg-query, apt-get, id and sudo.
source tools/scripts/expect.sh
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools" "$tree/third_party" "$TEST_TMPDIR/lists"
cp -L tools/install_packages "$tree/tools/"
printf '# comment\nalpha\n\nbeta  # why\n' >"$tree/third_party/debian_packages.txt"
export INSTALLED=$TEST_TMPDIR/installed CALLS=$TEST_TMPDIR/calls APT_LISTS=$TEST_TMPDIR/lists

fake_command dpkg-query <<'X'
#!/bin/sh
for package; do :; done
grep -qx "$package" "$INSTALLED" && printf installed
X
# Installs what it is asked for, except that it fails once when $OUTDATED exists until an update.
fake_command apt-get <<'X'
#!/bin/sh
shift 2
echo "$* $DEBIAN_FRONTEND" >>"$CALLS"
case $1 in
  update) rm -f "$OUTDATED"; exit "${UPDATE_STATUS:-0}" ;;
  install) [ -e "$OUTDATED" ] && exit 100
    shift 3; printf '%s\n' "$@" | grep -v unknown >>"$INSTALLED" ;;
esac
X
fake_command id <<'X'
#!/bin/sh
echo "${FAKE_ID:-0}"
X
fake_command sudo <<'X'
#!/bin/sh
echo "sudo" >>"$CALLS"
exec "$@"
X
export OUTDATED=$TEST_TMPDIR/outdated

# run WHAT EXPECTED_STATUS EXPECTED_CALLS [arguments]: `output` is then what it printed.
run() {
  local what=$1 expected_status=$2 expected_calls=$3 status
  shift 3
  : >"$CALLS"
  output=$(cd / && "$tree/tools/install_packages" "$@" 2>&1)
  status=$?
  expect "$what: exit status" "$expected_status" "$status"
  expect "$what: calls" "$expected_calls" "$(paste -sd, "$CALLS")"
}
installed() { printf '%s\n' "$@" >"$INSTALLED"; }
install='install --yes --no-install-recommends'

touch "$APT_LISTS/archive_Packages"
installed alpha beta
run "nothing missing" 0 ""
expect "nothing missing is silent" "" "$output"
installed alpha
for flag in --check --no-install; do
  run "check" 1 "" $flag
  expect_contains "check names it" "missing packages: beta" "$output"
done
run "install" 0 "$install beta noninteractive"
printf 'gamma\n' >"$tree/third_party/gate_packages.txt"
run "gates" 0 "$install gamma noninteractive" --gates
run "gates, nothing missing" 0 "" --gates
installed none
touch "$OUTDATED"
run "outdated lists" 0 "$install alpha beta noninteractive,update noninteractive,$install alpha beta noninteractive"
rm "$APT_LISTS/archive_Packages"
installed alpha
run "no lists" 0 "update noninteractive,$install beta noninteractive"
installed alpha
FAKE_ID=1000 run "as a user" 0 "sudo,update noninteractive,sudo,$install beta noninteractive"
run "wrong flag" 2 "" --chek
expect_contains "wrong flag is named" "found '--chek'" "$output"

echo unknown >>"$tree/third_party/debian_packages.txt"
run "what apt-get cannot install" 1 "update noninteractive,$install unknown noninteractive"
expect_contains "it is named" "still missing: unknown" "$output"

rm "$TEST_TMPDIR/fake_commands/sudo"
mkdir "$TEST_TMPDIR/few_commands"
for command in sh sed tr dirname readlink grep; do
  ln -s "$(command -v $command)" "$TEST_TMPDIR/few_commands/"
done
output=$(PATH=$TEST_TMPDIR/fake_commands:$TEST_TMPDIR/few_commands FAKE_ID=1000 "$tree/tools/install_packages" 2>&1)
expect_contains "no sudo" "as root, run: apt-get install unknown" "$output"
output=$(PATH=$TEST_TMPDIR/few_commands "$tree/tools/install_packages" 2>&1)
expect_contains "not Debian" "this is no Debian system" "$output"
expect_contains "not Debian: what is needed" "alpha beta" "$output"
exit $((failures > 0))
