# shellcheck shell=bash
# Sourced by the lint tests, which read the source tree itself, not declared inputs: they are local,
# never cached and take the real place of their first argument, a WORKSPACE.bazel, as the root.
cd -- "$(dirname -- "$(readlink -f -- "$1")")" || exit

# Prints the files of the repository, one a line: tracked ones and new ones that are not ignored;
# without git (an unpacked archive) all but bazel's links.
source_files() {
  {
    # Command-line configuration, so that a checkout owned by another user is read too.
    git -c safe.directory='*' ls-files --cached --others --exclude-standard 2>/dev/null ||
      find . \( -path ./.git -o -name 'bazel-*' -type l \) -prune -o -type f -printf '%P\n'
  } | while IFS= read -r file; do [ -f "$file" ] && printf '%s\n' "$file"; done
}
