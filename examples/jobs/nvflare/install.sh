# Sourced by jobs of NVIDIA FLARE. Needs their functions say and fail, and $root.
#   install_flare installs NVIDIA FLARE 2.9, PyTorch and this package into build/nvflare, unless they are there, and sets $python.

install_flare() {
  python=$root/build/nvflare/bin/python
  if ! "$python" -c 'import nvflare, torch, tensorpull._native' >/dev/null 2>&1; then  # also after an installation that was interrupted
    say "installing NVIDIA FLARE, PyTorch and this package into build/nvflare (some minutes)"
    python3 -m venv "$root/build/nvflare"
    # the CPU's PyTorch is a tenth of the other one; where its index cannot be reached, the other one will do
    "$python" -m pip install --quiet --no-deps --retries 1 --timeout 20 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null || say "the index of the CPU's PyTorch does not answer; taking the usual one"
    "$python" -m pip install --quiet "$root/examples/python[nvflare]" "nvflare==2.9.0" torch numpy safetensors || fail "pip could not install them (why is above)"
  fi
}
