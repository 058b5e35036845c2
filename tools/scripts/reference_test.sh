#!/bin/bash
# Runs tools/reference in a small tree: what Doxygen is given, and with a stand-in for it what is said of its warnings and links.
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

# A guide: links are HTML's, headings have anchors, code stays.
cat >"$tree/docs/other_page.md" <<'X'
# Other

## One & only

[here](#one--only), [net](../nn/net.h), [there](page.md#x-of-y), [`page` too](page.md), [home](../README.md), [web](https://a.b/c.md)
`[not](page.md)` ![picture](images/a.png)

    [code](page.md)
    ## code
X
expected=$(
  cat <<'X'
# Other

## One & only {#other_page--one--only}

<a href="md_docs_other_page.html#other_page--one--only">here</a>, net, <a href="md_docs_page.html#page--x-of-y">there</a>, <a href="md_docs_page.html"><code>page</code> too</a>, <a href="index.html">home</a>, [web](https://a.b/c.md)
`[not](page.md)` ![picture](images/a.png)

    [code](page.md)
    ## code
X
)
expect "a guide as Doxygen is given it" "$expected" "$("$tree/tools/reference" --filter "$tree/docs/other_page.md")"

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
# Pages with links: Doxygen's own to members that it leaves out are mended, others are named.
cat >"$TEST_TMPDIR/made.html" <<'X'
<a href="page.html#there">1</a> <a href="page.html#aabcdef0123456789abcdef01">2</a> <a href="#nested-classes">3</a> <a id="x" href="#x">4</a>
<a href="https://a.b/c.html">5</a> <a href="gone.html">6</a> <a href="page.html#gone">7</a> <img src="gone&amp;.png">
X
fake_command doxygen <<'X'
#!/bin/bash
config=$(cat)
touch "$(sed -n 's/^WARN_LOGFILE = "\(.*\)"$/\1/p' <<<"$config")"
pages=$(sed -n 's/^OUTPUT_DIRECTORY = "\(.*\)"$/\1/p' <<<"$config")/html
mkdir -p "$pages"
echo '<h2 id="there">' >"$pages/page.html"
cp "$TEST_TMPDIR/made.html" "$pages/made.html"
X
output=$(cd "$TEST_TMPDIR" && "$tree/tools/reference" out)
expect "links that lead nowhere" "1:$TEST_TMPDIR/out/html/index.html
made.html: gone&amp;.png leads nowhere
made.html: gone.html leads nowhere
made.html: page.html#gone leads nowhere" "$?:$output"
fake_command doxygen <<'X'
#!/bin/sh
exit 1
X
"$tree/tools/reference" --check 2>/dev/null
expect "Doxygen's failure is one" 2 $?
"$tree/tools/reference" --chek >/dev/null
expect "another word" 2 $?
exit $((failures > 0))
