#!/usr/bin/env bash
# Packages the library with Conan 2 from PyPI, with the system's Boost, and builds and runs the package's test. usage: bash tests/conan.sh FOLDER
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
folder=$1
python=/usr/bin/python3
[[ -x $python ]] || python=python3
cmake "-DPYTHON=$python" "-DENVIRONMENT=$folder/python" "-DPACKAGES=conan==2.34.0" -P "$root/tests/python_environment.cmake"
export CONAN_HOME=$folder/home
conan=$folder/python/bin/conan
"$conan" profile detect --force
"$conan" create "$root/cmake/conan" -s compiler.cppstd=20 -c tools.cmake.cmaketoolchain:generator=Ninja
