# shellcheck shell=bash
# Sourced by the scripts of tools/; not run by itself.
#
# `root` is the repository, wherever the caller stands and through whatever links it was started.
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd -P)

# prepare "$@": installs missing packages (only checks with --no-install) and sets `arguments`, the
# caller's without --no-install. Returns non-zero, its reason on stderr, when something is missing.
prepare() {
  local argument check=()
  arguments=()
  for argument in "$@"; do
    case $argument in
      --no-install) check=(--check) ;;
      *) arguments+=("$argument") ;;
    esac
  done
  "$root/tools/install_packages" "${check[@]}"
}
