#!/usr/bin/env bash
# Formats the sources with clang-format 19 as .clang-format says; with --check only names those that are not, and the places that break a rule of
# format_rules.py. Status: 0 none, 1 some, 2 there is no clang-format 19 (Debian's clang-format-19): other versions format differently.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

tool=clang-format-19
command -v "$tool" >/dev/null || tool=clang-format
command -v "$tool" >/dev/null && [[ $("$tool" --version) == *' 19.'* ]] || { echo "format.sh: there is no clang-format 19 here (Debian's clang-format-19)" >&2; exit 2; }
mapfile -d '' -t files < <(find include examples tests bench \( -name '*.hpp' -o -name '*.cpp' \) -print0)
case ${1-} in
  --check)
    status=0
    python3 tests/format_rules.py --test >/dev/null && python3 tests/format_rules.py . || status=1
    # The status is that of clang-format, not of what shortens its words.
    said=$(printf '%s\0' "${files[@]}" | xargs -0 -n 40 -P "$(nproc)" "$tool" --dry-run -Werror 2>&1) && exit "$status"
    printf '%s\n' "$said" | sed -nE 's/^([^:]*):.*error:.*/\1/p' | sort | uniq -c
    exit 1 ;;
  '') printf '%s\0' "${files[@]}" | xargs -0 -n 40 -P "$(nproc)" "$tool" -i ;;
  *) echo 'usage: bash tests/format.sh [--check]' >&2; exit 1 ;;
esac
