// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Compares the encoders: what breaks when a trained model's encoding is swapped, and what each costs on this machine.

#include "compare/options.hpp"
#include "compare/results.hpp"

#include <chrono>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <span>

namespace {

/// `given`, or where the examples lie: in the sources it was built from.
std::string model_folder(const std::string& given) {
  if (!given.empty()) return given;
#ifdef POSENC_EXAMPLES_DIR
  const std::string built_from = POSENC_EXAMPLES_DIR;
#else
  const std::string built_from = "examples";
#endif
  return built_from + "/models/bloom_gpl3_char";
}

void run(const compare::options& o) {
  const auto start = std::chrono::steady_clock::now();
  // Opened for appending now, so that a path that cannot be written is refused at once and an old file keeps its
  // contents until there are new ones.
  if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))
    throw std::runtime_error(o.json + ": cannot be written");
  posenc_examples::progress progress;
  const compare::swap_results swapped = compare::swap_encodings(model_folder(o.model), o.text, progress);
  progress.clear();
  print(std::cout, swapped);
  std::cout << std::flush;
  const compare::measure_results measured = compare::measure_encoders(progress);
  progress.clear();
  print(std::cout, measured);

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!o.json.empty()) {
    std::ofstream json(o.json);
    write_json(json, swapped, measured, seconds);
    json.close();
    if (!json) throw std::runtime_error(o.json + ": cannot be written");
    std::cout << "The same numbers are in " << o.json << "\n";
  }
  const std::time_t now = std::time(nullptr);
  std::cout << "Finished at " << std::put_time(std::localtime(&now), "%Y-%m-%d %H:%M:%S %Z") << " after " << std::fixed
            << std::setprecision(1) << seconds << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const compare::options o = compare::parse(std::span(argv + 1, argv + argc));
    if (o.help) {
      std::cout << compare::usage;
      return 0;
    }
    run(o);
  } catch (const std::exception& e) {
    std::cerr << "compare: " << e.what() << '\n';
    return 2;
  }
}
