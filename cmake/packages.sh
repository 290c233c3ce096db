# Sourced by bench/run.sh, examples/run.sh, examples/tools.sh and tests/run.sh: installs the Debian packages that are missing. Needs their functions say and fail.
#   install_packages LOG ITEM...: an item is PACKAGE, or PROGRAM:PACKAGE where any program of that name will do.

missing_packages() {
  local item
  for item in "$@"; do
    if [[ $item == *:* ]]; then
      command -v "${item%%:*}" >/dev/null || echo "${item#*:}"
    else
      [[ $(dpkg-query -W -f='${db:Status-Status}' "$item" 2>/dev/null) == installed ]] || echo "$item"
    fi
  done
}

install_packages() {
  local log=$1 missing sudo=
  shift
  command -v dpkg-query >/dev/null || { say "no dpkg here: taking the dependencies as installed"; return; }
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  local by_hand="apt-get install --no-install-recommends ${missing[*]}"
  command -v apt-get >/dev/null || fail "these packages are missing, and there is no apt-get to install them: ${missing[*]}"
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      fail "packages are missing that only root can install. As root: $by_hand"
    fi
    sudo=sudo
  fi
  # One repository of many may fail without being needed; whether it was, the installation says.
  $sudo apt-get update -qq >"$log" 2>&1 || say "apt-get update failed in part; going on with the package lists that are there"
  local megabytes
  megabytes=$(apt-get install -y -qq --no-install-recommends --print-uris "${missing[@]}" 2>/dev/null | awk '{ bytes += $3 } END { printf "%d", (bytes + 999999) / 1000000 }') || true
  say "installing ${missing[*]} (${megabytes:-?} MB to download)"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >>"$log" 2>&1 || {
    grep -E '^(E|W|Err)' "$log" | cut -c 1-300 | tail -n 5 >&2 || tail -n 20 "$log" >&2
    fail "apt-get could not install what is missing (why is above; often the network, or /etc/apt/sources.list). By hand: $by_hand"
  }
}

# nginx out of Debian's package and without installing it: its installation starts a server, and fails where that cannot be. It is in PATH afterwards.
# Status 1: it is not installed and cannot be fetched.
#   fetch_nginx FOLDER LOG
fetch_nginx() {
  command -v nginx >/dev/null || [[ -x /usr/sbin/nginx ]] && return
  local folder=$1 log=$2 package
  for package in nginx nginx-core nginx-light; do  # which of them has the program differs
    [[ ! -x $folder/usr/sbin/nginx ]] || break
    rm -rf -- "$folder"
    mkdir -p -- "$folder"
    { (cd -- "$folder" && timeout 120 apt-get -q -o Acquire::Retries=1 -o Acquire::http::Timeout=20 download "$package") && dpkg -x "$folder/$package"_*.deb "$folder"; } >>"$log" 2>&1 || true
  done
  "$folder/usr/sbin/nginx" -v >>"$log" 2>&1 || return 1
  export PATH=$PATH:$folder/usr/sbin
}
