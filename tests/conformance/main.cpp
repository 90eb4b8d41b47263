// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// posenc_conformance PATH...: evaluates golden files, or every .json file below folders, through the public API.
// One line per case, a second one where a compatibility mode has a tolerance of its own:
//   ok OP CASE
//   FAIL OP CASE output NAME: error E, tolerance T
//   skip OP CASE: reason
// and at the end `N passed, N failed, N skipped`. Exit code 0 if none failed, 1 if one did, 2 for wrong use.
#include "golden.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

namespace {

namespace fs = std::filesystem;

class report {
 public:
  void ok(const std::string& what) {
    std::printf("ok %s\n", what.c_str());
    ++passed_;
  }
  void fail(const std::string& what, const std::string& why) {
    std::printf("FAIL %s %s\n", what.c_str(), why.c_str());
    ++failed_;
  }
  void skip(const std::string& what, const std::string& why) {
    std::printf("skip %s: %s\n", what.c_str(), why.c_str());
    ++skipped_;
  }
  void verdict(const std::string& what, const std::string& fault) { fault.empty() ? ok(what) : fail(what, fault); }

  /// The last line. @return the exit code.
  int finish() const {
    std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
};

void run_case(const std::string& op, const golden::test_case& c, report& out) {
  const std::string what = op + " " + c.name();
  const auto found = golden::registry().find(op);
  if (found == golden::registry().end()) return out.skip(what, "no " + op + " yet");
  golden::answers a;
  try {
    found->second(c, a);
    out.verdict(what, golden::fault(c, a.exact(), false));
    const auto& expected = c.all_expected();
    if (std::any_of(expected.begin(), expected.end(), [&](const auto& e) { return c.wants_peer_arithmetic(e.first); }))
      out.verdict(what + " [" + a.mode() + "]", golden::fault(c, a.peer(), true));
  } catch (const golden::unsupported& e) {
    out.skip(what, std::string("no ") + e.what() + " yet");
  } catch (const std::exception& e) {
    out.fail(what, e.what());
  }
}

void run_file(const fs::path& path, report& out) {
  try {
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot be read");
    const auto file = nlohmann::json::parse(in);
    if (file.at("schema").get<int>() != 1) throw std::runtime_error("schema is not 1");
    const auto op = file.at("op").get<std::string>();
    const bool float32 = op.rfind("onnx.", 0) == 0;
    if (file.at("cases").empty()) throw std::runtime_error("holds no case");
    for (const auto& source : file.at("cases")) run_case(op, golden::test_case(source, float32), out);
  } catch (const std::exception& e) {
    out.fail(path.string(), e.what());
  }
}

std::vector<fs::path> files_below(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: posenc_conformance PATH...\n");
    return 2;
  }
  report out;
  for (int i = 1; i < argc; ++i) {
    const auto files = files_below(argv[i]);
    if (files.empty()) out.fail(argv[i], "holds no .json file");
    for (const auto& file : files) run_file(file, out);
  }
  return out.finish();
}
