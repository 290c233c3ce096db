# Sourced by tests/run.sh: runs the fuzz targets, two at a time.
#   fuzz_all FOLDER SECONDS: needs root, build, the counters passed and failed, and the function say.

# Each target has a folder of its name with a corpus, here and beside the tests of satellites.
mapfile -t fuzz_corpora < <(ls -d "$root"/tests/fuzz/corpus/*/ "$root"/tests/satellites/*/fuzz/corpus/*/)
fuzz_targets=("${fuzz_corpora[@]%/}")
fuzz_targets=("${fuzz_targets[@]##*/}")

# One target, from the corpus in the tree and what earlier runs found; its output to a log, its status as a file.
fuzz_one() {
  local folder=$1 target=$2 seconds=$3
  local found=$build/fuzz-found/$target crashes=$build/fuzz-crashes/$target
  rm -rf -- "$crashes"
  mkdir -p -- "$found" "$crashes"
  # a push tries what the last one tried, so it counts inputs and its time is a bound only; a longer run tries what is new
  local status=0 seed=(-seed=1 -runs=20000 -max_total_time=$((seconds * 6)))
  ((seconds < 60)) || seed=("-max_total_time=$seconds")
  # a small quarantine: every input frees the same few buffers, and a large one would only move them through memory
  ASAN_OPTIONS=quarantine_size_mb=4 "$folder/tests/fuzz/tensorpull_fuzz_$target" "${seed[@]}" -timeout=60 -rss_limit_mb=2048 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="$crashes/" "$found" "$(printf '%s\n' "${fuzz_corpora[@]}" | grep "/$target/$")" \
    >"$build/logs/fuzz-$target.log" 2>&1 || status=$?
  echo "$status" >"$build/logs/fuzz-$target.status"
}

fuzz_all() {
  local folder=$1 seconds=$2 target bad=0
  for target in "${fuzz_targets[@]}"; do
    while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
    fuzz_one "$folder" "$target" "$seconds" &
  done
  wait
  for target in "${fuzz_targets[@]}"; do
    local log=$build/logs/fuzz-$target.log inputs
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [[ $(<"$build/logs/fuzz-$target.status") == 0 ]]; then
      passed=$((passed + 1))
      say "fuzz: $target, $inputs inputs, $(sed -n 's/.*\(cov: [0-9]*\).*/\1/p' "$log" | tail -n 1)"
      continue
    fi
    failed=$((failed + 1)) bad=1
    grep -E -A 12 'ERROR: |runtime error: |what\(\)' "$log" | head -n 40 >&2 || tail -n 20 "$log" >&2
    local input
    for input in "$build/fuzz-crashes/$target"/*; do
      [[ -f $input ]] || continue
      say "fuzz: $target fails on this input; make it anew and run it:" >&2
      echo "  echo $(od -An -v -tx1 "$input" | tr -d ' \n') | xxd -r -p > input; ${folder#"$root"/}/tests/fuzz/tensorpull_fuzz_$target input" >&2
    done
    say "fuzz: $target failed; the whole output is in ${log#"$root"/}" >&2
  done
  return $bad
}
