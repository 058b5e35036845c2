#!/bin/bash
# Runs tools/reference in a small tree: what Doxygen is given, and with a stand-in for it what is said of its warnings.
source tools/scripts/expect.sh
tree=$(readlink -f "$TEST_TMPDIR")/tree
mkdir -p "$tree/tools" "$tree/docs" "$tree/examples" "$tree/memory" "$tree/nn/testing"
cp -L tools/reference "$tree/tools/"
echo 'See `memory/box.h` and `memory/gone.h`.' >"$tree/README.md"
echo '[x](../nn/testing/fake.h)' >"$tree/docs/page.md"
printf '#include "tidepool/nn/net.h"\n#include <vector>\n' >"$tree/examples/x.cc"
touch "$tree/nn/net.h" "$tree/nn/testing/fake.h" "$tree/memory/other.h"
cat >"$tree/memory/box.h" <<'X'
// Box: a thing of x@y, 50% full.
//
// Threads: none.
#ifndef BOX
class Box {
 public:
  Box();
  // How large, in bytes.
  int width() const;
  int height() const { return 1; }

  int depth() const;
  // Opens it.
  void Open() {
    width();
  }
  void Close();
  int lid = 0;  // how many
};
// A pair.
template <typename T>
struct Pair {};
#endif
X

expect "headers" $'memory/box.h\nnn/net.h' "$("$tree/tools/reference" --list)"
expected=$(
  cat <<'X'
/** \file
Box: a thing of x\@y, 50\% full. <p> Threads: none. */

#ifndef BOX
/** Box: a thing of x\@y, 50\% full. <p> Threads: none.  */ class Box {
 public:
  Box();

  /** How large, in bytes. */ int width() const;
  /** How large, in bytes. */ int height() const { return 1; }

  int depth() const;

  /** Opens it. */ void Open() {
    width();
  }
  void Close();
  int lid = 0;  ///< how many
};

/** A pair. */ template <typename T>
struct Pair {};
#endif
X
)
expect "what Doxygen is given" "$expected" "$("$tree/tools/reference" --filter "$tree/memory/box.h")"

# Says of every place what Doxygen would if nothing had a comment that it can see.
fake_command doxygen <<'X'
#!/bin/bash
config=$(cat)
log=$(sed -n 's/^WARN_LOGFILE = "\(.*\)"$/\1/p' <<<"$config")
header=$(sed -n 's/^INPUT = "\([^"]*\)".*$/\1/p' <<<"$config")
for member in '7:Member Box()' '12:Member depth() const' '17:Member Close()'; do
  echo "$header:${member%%:*}: warning: ${member#*:} (function) of class Box is not documented."
done >"$log"
echo "$header:22: warning: Compound Lid is not documented." >>"$log"
X
output=$("$tree/tools/reference" --check)
expect "a check that finds something" 1 $?
expect "what has no comment" $'memory/box.h:12: depth() const has no comment\nmemory/box.h:17: Close() has no comment\nmemory/box.h:22: Lid has no comment' "$output"
fake_command doxygen <<'X'
#!/bin/sh
touch "$(sed -n 's/^WARN_LOGFILE = "\(.*\)"$/\1/p')"
X
output=$("$tree/tools/reference" --check)
expect "a check that finds nothing" "0:" "$?:$output"
expect "where the pages are" "$TEST_TMPDIR/out/html/index.html" "$(cd "$TEST_TMPDIR" && "$tree/tools/reference" out)"
fake_command doxygen <<'X'
#!/bin/sh
exit 1
X
"$tree/tools/reference" --check 2>/dev/null
expect "Doxygen's failure is one" 2 $?
"$tree/tools/reference" --chek >/dev/null
expect "another word" 2 $?
exit $((failures > 0))
