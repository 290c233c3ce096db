#!/usr/bin/env bash
# Shows that format.sh --check can fail: a tree with one well formatted file, then with one wrong line. Status: as format.sh.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf -- "$copy"' EXIT
mkdir "$copy"/{include,examples,tests,bench}
cp -- "$here/../.clang-format" "$copy/"
cp -- "$here/format.sh" "$copy/tests/"
printf 'int one();\n' >"$copy/tests/one.cpp"
bash "$copy/tests/format.sh" --check
printf 'int   two ( ) ;\n' >>"$copy/tests/one.cpp"
status=0
said=$(bash "$copy/tests/format.sh" --check) || status=$?
[[ $status == 1 && $said == *tests/one.cpp* ]] || { echo "format.sh --check: status $status, it said: $said" >&2; exit 1; }
bash "$copy/tests/format.sh"
bash "$copy/tests/format.sh" --check
echo 'format.sh found the wrong line and mended it'
