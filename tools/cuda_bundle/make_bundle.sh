#!/bin/bash
# make_bundle.sh FOLDER DATA PROGRAM...
#
# Copies the programs, without symbols, to FOLDER/bin and the shared libraries they need to FOLDER/lib, but for NVIDIA's. The C
# library and its loader lie apart in FOLDER/lib/c: they are for machines whose own is older. DATA: file=path in FOLDER, with
# colons between.
set -eu -o pipefail

folder=$1
data=$2
shift 2

mkdir -p "$folder/bin" "$folder/lib/c"
for program in "$@"; do
  copy="$folder/bin/$(basename "$program")"
  cp -L "$program" "$copy"
  chmod u+w "$copy"
  strip "$copy"
  chmod 755 "$copy"
  ldd "$copy" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r name path; do
    case $name in
      libcu* | libnv*) ;;
      libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so*)
        [ -e "$folder/lib/c/$name" ] || { cp -L "$path" "$folder/lib/c/$name" && chmod 644 "$folder/lib/c/$name"; } ;;
      *) [ -e "$folder/lib/$name" ] || { cp -L "$path" "$folder/lib/$name" && chmod 644 "$folder/lib/$name"; } ;;
    esac
  done
done
# Stand-ins for libraries of NVIDIA's that a machine may lack: each function refuses (1: not initialized), so that whatever does
# without them runs.
mkdir -p "$folder/lib/absent"
for library in $(for program in "$folder"/bin/*; do ldd "$program" | awk '$1 ~ /^libcublas/ { print $1 }'; done | sort -u); do
  source="$folder/lib/absent/stand_in.c"
  for program in "$folder"/bin/*; do nm -D --undefined-only "$program"; done |
    awk -v "at=@$library" 'index($2, at) { sub(at, "", $2); print $2 }' | sort -u |
    while read -r name; do
      case $name in
        *Name | *String) echo "const char* $name() { return \"$library is not here\"; }" ;;
        *) echo "int $name() { return 1; }" ;;
      esac
    done > "$source"
  echo "$library { global: *; };" > "$source.map"
  "${CC:-cc}" -shared -fPIC -O1 -Wl,-soname,"$library" -Wl,--version-script="$source.map" -x c "$source" \
    -o "$folder/lib/absent/$library"
  rm "$source" "$source.map"
done
loader=$(ldd "$folder/bin/$(basename "$1")" | awk '$1 ~ /ld-linux/ { print $1 }')
cp -L "$loader" "$folder/lib/c/$(basename "$loader")"
chmod 755 "$folder/lib/c/$(basename "$loader")"
IFS=: read -r -a files <<< "$data"
for file in "${files[@]}"; do
  mkdir -p "$folder/$(dirname "${file#*=}")"
  cp -L "${file%%=*}" "$folder/${file#*=}"
  case $file in *.py) mode=755 ;; *) mode=644 ;; esac
  chmod $mode "$folder/${file#*=}"
done
