#!/usr/bin/env bash
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# stage.sh PRESET TARGET... [-- CTEST_OPTION...]: configures and builds the targets of a preset, runs its tests, and ends
# with the line `N passed, N failed`. A build that fails counts as one failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/scripts/packages.sh
preset=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  targets+=("$1")
  shift
done
if [ $# -gt 0 ]; then shift; fi
jobs=$(posenc_jobs)
start=$SECONDS

# Reference data that is too large for the tree; tests that want more than tests/golden skip by name without it.
if [ -z "${POSENC_TEST_DATA:-}" ] && [ -d ../shared/golden ]; then
  POSENC_TEST_DATA=$(cd ../shared && pwd)
  export POSENC_TEST_DATA
fi

echo "== $preset: configure"
if ! cmake --preset "$preset"; then
  echo "0 passed, 1 failed"
  exit 1
fi
echo "== $preset: build ${targets[*]} with $jobs jobs ($((SECONDS - start)) s)"
# Without a terminal ninja prints a line per file; a line per tenth of the work is enough.
show=(cat)
if [ ! -t 1 ]; then show=(awk '/^\[[0-9]+\/[0-9]+\]/ {split(substr($1, 2), n, /[\/\]]/); d = int(10 * n[1] / n[2]);
                              if (d != last) {last = d; print; fflush()}; next} {print; fflush()}'); fi
if ! cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}" | "${show[@]}"; then
  echo "0 passed, 1 failed"
  exit 1
fi
echo "== $preset: test ($((SECONDS - start)) s)"
rm -f "build/$preset/ctest.xml"
code=0
# The whole output of every test goes into the report; by default ctest cuts it, and with it the counts at its end.
ctest --preset "$preset" -j "$jobs" --output-junit "$PWD/build/$preset/ctest.xml" \
  --test-output-size-passed 50000000 --test-output-size-failed 50000000 "$@" || code=$?
echo "== $preset: done in $((SECONDS - start)) s"
python3 tests/scripts/summary.py "build/$preset" || code=1
exit "$code"
