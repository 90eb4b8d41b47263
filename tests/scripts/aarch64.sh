#!/usr/bin/env bash
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# The tests of simd and kernels on NEON: cross-compiled for aarch64 and run under qemu. Catch2 2.13 is one header and
# needs no cross-built library; with Catch2 3 the step is skipped by name. The last line is `N passed, N failed`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/scripts/packages.sh
posenc_require_packages g++-aarch64-linux-gnu qemu-user "${posenc_build_packages[@]}" catch2
if [ ! -e /usr/include/catch2/catch.hpp ]; then
  echo "skipped: aarch64: Catch2 3 would have to be cross-built"
  echo "0 passed, 0 failed"
  exit 0
fi
out=build/aarch64
mkdir -p "$out/include"
# Only these of the host's headers: its C library's are not for this target.
for name in xsimd catch2 eigen3 nlohmann; do ln -sfn "/usr/include/$name" "$out/include/$name"; done

compile() {
  local object
  object=$1/$(basename "$(dirname "$2")")_$(basename "$2" .cpp).o
  aarch64-linux-gnu-g++ -std=c++20 -O1 -Iinclude -Itests -Itests/support -isystem "$1/include" \
    -isystem "$1/include/eigen3" -DPOSENC_TESTS_DIR='"tests"' -c "$2" -o "$object"
}
export -f compile
printf '%s\n' tests/support/main.cpp tests/unit/simd/{batch,exp,memory,sincos}_test.cpp tests/unit/kernels/*_test.cpp |
  xargs -P "$(posenc_jobs)" -I{} bash -c "compile $out {}"
aarch64-linux-gnu-g++ "$out"/*.o -o "$out/tests"
code=0
report=$(qemu-aarch64 -L /usr/aarch64-linux-gnu "$out/tests") || code=$?
tail -n 3 <<< "$report"
if [ "$code" -eq 0 ]; then
  cases=$(sed -n 's/.* in \([0-9]*\) test cases\?).*/\1/p' <<< "$report")
  echo "$cases passed, 0 failed"
else
  echo "0 passed, 1 failed"
fi
exit "$code"
