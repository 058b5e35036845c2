#!/bin/bash
# make_bundle.sh FOLDER RUN_ALL DATA PROGRAM...
#
# Copies the programs, without symbols, to FOLDER/bin and the shared libraries they need to FOLDER/lib,
# but for the C library, which a machine's own driver is bound to, and NVIDIA's. DATA: file=path in FOLDER,
# with colons between.
set -eu -o pipefail

folder=$1
run_all=$2
data=$3
shift 3

mkdir -p "$folder/bin" "$folder/lib"
for program in "$@"; do
  copy="$folder/bin/$(basename "$program")"
  cp -L "$program" "$copy"
  chmod u+w "$copy"
  strip "$copy"
  chmod 755 "$copy"
  ldd "$copy" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r name path; do
    case $name in
      libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | ld-linux* | libcu* | libnv*) ;;
      *) [ -e "$folder/lib/$name" ] || { cp -L "$path" "$folder/lib/$name" && chmod 644 "$folder/lib/$name"; } ;;
    esac
  done
done
IFS=: read -r -a files <<< "$data"
for file in "${files[@]}"; do
  mkdir -p "$folder/$(dirname "${file#*=}")"
  cp -L "${file%%=*}" "$folder/${file#*=}"
  chmod 644 "$folder/${file#*=}"
done
cp -L "$run_all" "$folder/run_all.sh"
chmod 755 "$folder/run_all.sh"
