#!/usr/bin/env bash
# Shows that format.sh --check can fail: a tree with one well formatted file, then with wrong lines. Status: as format.sh.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf -- "$copy"' EXIT
mkdir "$copy"/{include,examples,tests,bench}
cp -- "$here/../.clang-format" "$copy/"
cp -- "$here/format.sh" "$here/format_rules.py" "$copy/tests/"
printf 'int one();\n' >"$copy/tests/one.cpp"
bash "$copy/tests/format.sh" --check
printf 'int   two ( ) ;\n' >>"$copy/tests/one.cpp"
status=0
said=$(bash "$copy/tests/format.sh" --check) || status=$?
[[ $status == 1 && $said == *tests/one.cpp* ]] || { echo "format.sh --check: status $status, it said: $said" >&2; exit 1; }
bash "$copy/tests/format.sh"
bash "$copy/tests/format.sh" --check

# What only the rules find.
printf 'int sign(int a) { return a < 0 ? -1 : a > 0 ? 1 : 0; }\n' >>"$copy/tests/one.cpp"
status=0
said=$(bash "$copy/tests/format.sh" --check) || status=$?
[[ $status == 1 && $said == *'tests/one.cpp:3: '* ]] || { echo "format.sh --check: status $status, it said: $said" >&2; exit 1; }
echo 'format.sh found the wrong lines and mended one'
