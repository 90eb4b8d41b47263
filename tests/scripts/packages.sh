# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Sourced by the scripts of the project: installs missing Debian or Ubuntu packages, or names them.

# Whether what a package gives is there, however it was installed.
posenc_have() {
  local roots="/usr/include /usr/local/include ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//[:;]/\/include }/include}" root
  local file=""
  case "$1" in
    g++) command -v g++ > /dev/null; return ;;
    clang) command -v clang++ > /dev/null; return ;;
    cmake | python3 | git) command -v "$1" > /dev/null; return ;;
    ninja-build) command -v ninja > /dev/null; return ;;
    binutils) command -v objdump > /dev/null; return ;;
    libeigen3-dev) file=eigen3/Eigen/Core ;;
    libxsimd-dev) file=xsimd/xsimd.hpp ;;
    catch2) file=catch2 ;;
    libbenchmark-dev) file=benchmark/benchmark.h ;;
    nlohmann-json3-dev) file=nlohmann/json.hpp ;;
    *) dpkg-query -W -f '${Status}' "$1" 2> /dev/null | grep -q 'ok installed'; return ;;
  esac
  for root in $roots; do
    if [ -e "$root/$file" ]; then return 0; fi
  done
  return 1
}

# posenc_require_packages PACKAGE...: returns with all of them there, or ends the script with code 2.
posenc_require_packages() {
  local package missing=() sudo=()
  for package in "$@"; do
    posenc_have "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi

  echo "== installing ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then sudo=(sudo -n); fi
  if command -v apt-get > /dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2> /dev/null; }; then
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=20 update -qq || true
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null || true
  fi
  local left=()
  for package in "${missing[@]}"; do
    posenc_have "$package" || left+=("$package")
  done
  if [ ${#left[@]} -ne 0 ]; then
    echo "missing: ${left[*]}; install with: sudo apt-get install -y --no-install-recommends ${left[*]}" >&2
    exit 2
  fi
}

# How many compilers to run at once: one per processor, while each has 1.5 GB of memory.
posenc_jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo 2> /dev/null || true)
  if [ -n "$memory" ] && [ "$memory" -lt "$processors" ]; then processors=$memory; fi
  if [ "$processors" -lt 1 ]; then processors=1; fi
  echo "$processors"
}

# What the library itself needs to build.
posenc_build_packages=(g++ cmake ninja-build libeigen3-dev libxsimd-dev nlohmann-json3-dev)
