#!/usr/bin/env bash
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Installs what is missing, builds the example programs with all instructions of this CPU, and compares the encoders.
# Arguments go to the comparison: `bash examples/run.sh --text FILE --json FILE`.
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/scripts/packages.sh
posenc_require_packages "${posenc_build_packages[@]}"

log=build/release/examples.log
mkdir -p build/release
echo "== building the examples (about two minutes the first time)"
# Nothing but the programs, so that Catch2 and Google Benchmark are not needed.
if ! { cmake --preset release -DPOSENC_BUILD_TESTS=OFF -DPOSENC_BUILD_BENCH=OFF &&
  cmake --build --preset release -j "$(posenc_jobs)" --target posenc_programs; } > "$log" 2>&1; then
  cat "$log"
  echo "the build failed, see above" >&2
  exit 1
fi
# File names among the arguments are relative to where the caller stands.
program=$PWD/build/release/examples/compare
cd "$here"
exec "$program" "$@"
