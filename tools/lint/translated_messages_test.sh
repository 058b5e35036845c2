#!/bin/bash
# Messages that the C API words anew (tools/c_api/error_terms.cc, the first texts of kTerms) are texts of the library: who
# changes a message sees here that callers in C would read the old one's names of C++ again.
source tools/lint/source_tree.sh "$1"
source_files | grep -E '^(memory|ndarray|nn|backends)/.*\.(h|cc|cu|inc)$' |
  grep -Ev '(_test|_benchmark)\.(h|cc)$|/(testing|conformance|testdata)/' | python3 -c '
import re, sys
text = r"\"((?:[^\"\\\n]|\\.)*)\""
def joined(source):  # pieces of one text that stand behind each other
  return re.sub(r"(?<!\\)\"\s*\n\s*\"", "", source)
terms = open("tools/c_api/error_terms.cc").read()
table = re.search(r"kTerms\[\] = \{(.*?)\n\};", terms, re.S)
translated = [pair[0] for pair in re.findall(text + r",\s*" + text, joined(table.group(1)))] if table else []
if not translated:
  sys.exit("tools/c_api/error_terms.cc: found no kTerms with texts, expected some")
library = "\n".join(found for path in sys.stdin.read().split("\n") if path
                    for found in re.findall(text, joined(open(path, errors="replace").read())))
missing = [term for term in translated if term not in library]
for term in missing:
  print(f"tools/c_api/error_terms.cc: no message of the library has \"{term}\"")
sys.exit(1 if missing else 0)
'
