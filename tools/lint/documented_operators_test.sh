#!/bin/bash
# The table of names in docs/arrays.md has every function of ndarray/ops, ndarray/linalg, ndarray/creation.h and the tape of
# gradients, and no other.
# Functions that end in Into are those without it, unless there is no such.
source tools/lint/source_tree.sh "$1"
status=0

# Names in the third column, those of members by their last part.
documented() {
  sed -n '/^| NumPy | PyTorch | here |/,/^$/p' docs/arrays.md | tail -n +3 | sed 's/\\|/ /g' | cut -d '|' -f 4 |
    grep -oE '`[A-Za-z:]+[A-Za-z0-9]*`' | tr -d '`' | sort -u
}
headers() {
  source_files | grep -E '^ndarray/((ops|linalg)/[a-z0-9_]+|creation|gradient/gradient_tape)\.h$' |
    grep -vE '/(axes|checks|nn_checks|pointwise|contraction|composed_gradients|gradient_plan|gradient_task|scalar_operand|shape_only_array|items|eigen_maps|right_sides)\.h$' # what the others share
}
declared() {
  headers | tr '\n' '\0' | xargs -0 -r sed -nE \
    -e 's,//.*,,' -e 's/^  NDArray ([A-Z][A-Za-z0-9]*)\(absl::Span<const T>.*/\1/p' \
    -e 's/^(inline )?[A-Za-z:]+(<[A-Za-z:]+>)? ([A-Z][A-Za-z0-9]*)\(.*/\3/p' -e 's/^class ([A-Z][A-Za-z0-9]*) \{.*/\1/p' |
    sort -u
}

in_table=$(documented)
in_headers=$(declared)
[[ -n $in_table && -n $in_headers ]] || { echo "no table of names in docs/arrays.md, or no headers"; exit 1; }
while IFS= read -r name; do
  grep -qxE "${name%Into}(Into)?" <<<"$in_table" && continue
  grep -qE "^\|.*\`$name\`" docs/arrays.md && continue # in a remark
  echo "docs/arrays.md: $name is not in the table of names"
  status=1
done <<<"$in_headers"
while IFS= read -r name; do
  if [[ $name == NDArray::* ]]; then
    grep -qE "^  NDArray ${name#NDArray::}\(" ndarray/ndarray.h && continue
  else
    grep -qxE "$name(Into)?" <<<"$in_headers" && continue
  fi
  echo "docs/arrays.md: $name of the table of names is in no header"
  status=1
done <<<"$in_table"
exit $status
