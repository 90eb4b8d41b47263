#!/usr/bin/env bash
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Builds the benchmarks as a user would (-O3 -march=native), runs them and every peer that is installed, and prints each
# target with the ratio that was measured.
#   bash bench/report.sh            three rounds; the tables go into docs/benchmarks.md
#   QUICK=1 bash bench/report.sh    one short round, printed only
# POSENC_REPORT_BUILD names the build folder (build/report unless given).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${POSENC_REPORT_BUILD:-build/report}
results=$build/results
rounds=3 repetitions=3 min_time=0.1 page=(--write docs/benchmarks.md)
if [ "${QUICK:-0}" != 0 ]; then rounds=1 repetitions=3 min_time=0.02 page=(); fi
# Every library on one thread, whatever it would choose.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
peers=(ggml xnnpack onnxruntime torch)

cmake --preset release -B "$build" -DPOSENC_BUILD_TESTS=OFF -DPOSENC_BUILD_EXAMPLES=OFF
cmake --build "$build" -j "$(nproc)" --target attention_bench rotation_bench posenc_bench_peers posenc_counts
rm -rf "$results"
mkdir -p "$results"

# run ROUND NAME PROGRAM OPTION...: one program; repetitions of its rows are interleaved.
run() {
  local round=$1 name=$2 out
  shift 2
  out=$("$@" --benchmark_out="$results/$round/$name.json" --benchmark_out_format=json \
    --benchmark_enable_random_interleaving=true --benchmark_repetitions="$repetitions" \
    --benchmark_min_time="$min_time" 2>> "$results/messages")
  if [[ $out == "peer=$name absent" ]]; then
    echo "$out"
    rm -f "$results/$round/$name.json"
    echo "$out" >> "$results/absent"
  fi
}

for round in $(seq "$rounds"); do
  echo "== round $round of $rounds ($SECONDS s)"
  mkdir -p "$results/$round"
  run "$round" attention "$build/bench/attention_bench"
  run "$round" rotation "$build/bench/rotation_bench" --benchmark_filter='^(floor|encoders)/'
  for peer in "${peers[@]}"; do
    if grep -qs "^peer=$peer absent$" "$results/absent"; then continue; fi
    program=("$build/bench/peers/${peer}_peer")
    # Without its C++ headers PyTorch is measured from Python.
    if [ "$peer" = torch ] && [ "$("${program[@]}" --benchmark_filter=none 2> /dev/null)" = "peer=torch absent" ]; then
      program=(python3 bench/peers/torch_peer.py)
    fi
    run "$round" "$peer" "${program[@]}"
  done
done
python3 bench/counts/counts.py --run "$build/bench/counts/posenc_counts" "$results"
compiler() { sed -n "s/^set(CMAKE_CXX_COMPILER_$1 \"\(.*\)\")/\1/p" "$build"/CMakeFiles/*/CMakeCXXCompiler.cmake; }
facts="$(compiler ID) $(compiler VERSION), -O3 -march=native"
python3 bench/report.py "$results" "${page[@]}" --facts "$facts"
