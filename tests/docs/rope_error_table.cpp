// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// rope_error_table              prints the table of docs/encoders/rope.md: errors of cosines by position and method
// rope_error_table PAGE         compares it with what stands there between `<!-- rope error table -->` and
//                               `<!-- /rope error table -->`; exit code 1 and the right table where they differ
// rope_error_table PAGE --fix   writes it there
// Right values come from tests/reference, which shares no line with the library. A cell agrees if it is within a factor
// of 1.15, one unit of its last digit; one in a row of doubles within 2, because there the last bit of a power or of a
// cosine counts, which another mathematics library may round the other way.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

#include "reference/angle.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t dim = 128;
constexpr std::array<std::int64_t, 7> positions{1000, 10000, 100000, 1000000, 10000000, 16777217, 1000000000};

/// The largest |cosine - exact cosine| over the pairs, where `cosines(p)` are those of a method.
template <class Cosines>
void print_row(std::ostream& out, const reference::ladder_values& ladder, const char* method, Cosines cosines) {
  out << "| " << method;
  for (const std::int64_t p : positions) {
    const std::vector<double> got = cosines(p);
    long double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto right =
          reference::cosine_sine_of(reference::phase_of(reference::wide(ladder.values[i]), reference::integer(p)));
      worst = std::max(worst, std::fabs(static_cast<long double>(got[i]) - right.cos));
    }
    char cell[32];
    std::snprintf(cell, sizeof cell, "%.1e", static_cast<double>(worst));
    out << " | " << cell;
  }
  out << " |\n";
}

/// Rows of the library, rounded to R.
template <class R>
auto rows(double base, posenc::angle_mode angles) {
  return [encoder = posenc::rope<float>({.head_dim = dim, .base = base, .angles = angles})](std::int64_t p) {
    std::array<R, dim / 2> cos;
    std::array<R, dim / 2> sin;
    encoder.cos_sin(p, cos.data(), sin.data());
    std::vector<double> out;
    for (const R c : cos) out.push_back(static_cast<double>(c));
    return out;
  };
}

/// What is written by hand: a double frequency times the position, and the cosine of that.
auto double_angles(double base) {
  return [base](std::int64_t p) {
    std::vector<double> out;
    for (std::int64_t i = 0; i < dim / 2; ++i)
      out.push_back(
          std::cos(static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim))));
    return out;
  };
}

void print_table(std::ostream& out) {
  using posenc::angle_mode;
  for (const reference::ladder_values& ladder : reference::ladders) {
    if (ladder.dim != dim) continue;
    const double base = ladder.base;
    out << "| base " << static_cast<std::int64_t>(base) << " | 10^3 | 10^4 | 10^5 | 10^6 | 10^7 | 2^24 + 1 | 10^9 |\n"
        << "|---|---|---|---|---|---|---|---|\n";
    print_row(out, ladder, "`exact`, double rows", rows<double>(base, angle_mode::exact));
    print_row(out, ladder, "`exact`, float rows", rows<float>(base, angle_mode::exact));
    print_row(out, ladder, "`exact`, half rows", rows<Eigen::half>(base, angle_mode::exact));
    print_row(out, ladder, "`exact`, bfloat16 rows", rows<Eigen::bfloat16>(base, angle_mode::exact));
    print_row(out, ladder, "`float32`", rows<float>(base, angle_mode::float32));
    print_row(out, ladder, "`float32_rounded_inv_freq`", rows<float>(base, angle_mode::float32_rounded_inv_freq));
    print_row(out, ladder, "`ggml_recurrence`", rows<float>(base, angle_mode::ggml_recurrence));
    print_row(out, ladder, "double angle, double cosine", double_angles(base));
    out << "\n";
  }
}

const std::string begin_mark = "<!-- rope error table -->\n";
const std::string end_mark = "<!-- /rope error table -->";

/// Where the table stands in a page; npos where a mark is missing.
struct span_of_table {
  std::size_t from = std::string::npos;
  std::size_t to = std::string::npos;
  explicit span_of_table(const std::string& page) {
    if (const std::size_t mark = page.find(begin_mark); mark != std::string::npos) from = mark + begin_mark.size();
    if (from != std::string::npos) to = page.find(end_mark, from);
  }
};

bool cells_agree(const std::string& a, const std::string& b, double factor) {
  if (a == b) return true;
  char* a_end = nullptr;
  char* b_end = nullptr;
  const double x = std::strtod(a.c_str(), &a_end);
  const double y = std::strtod(b.c_str(), &b_end);
  return *a_end == 0 && *b_end == 0 && x > 0 && y > 0 && x <= y * factor && y <= x * factor;
}

bool tables_agree(const std::string& a, const std::string& b) {
  std::istringstream first(a);
  std::istringstream second(b);
  std::string x;
  std::string y;
  while (std::getline(first, x)) {
    if (!std::getline(second, y)) return false;
    const double factor = y.find("double") != std::string::npos ? 2.0 : 1.15;
    std::istringstream left(x);
    std::istringstream right(y);
    while (left >> x)
      if (!(right >> y) || !cells_agree(x, y, factor)) return false;
    if (right >> y) return false;
  }
  return !std::getline(second, y);
}

}  // namespace

int main(int argc, char** argv) {
  std::ostringstream table;
  print_table(table);
  if (argc < 2) {
    std::cout << table.str();
    return 0;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  std::string page = text.str();
  const span_of_table where(page);
  if (where.to == std::string::npos) {
    std::cout << argv[1] << ": has no place for the table\n";
    return 1;
  }
  const std::string stands = page.substr(where.from, where.to - where.from);
  if (tables_agree(stands, table.str())) {
    std::cout << "the error table in " << argv[1] << " is up to date\n";
    return 0;
  }
  if (argc > 2 && std::string(argv[2]) == "--fix") {
    page.replace(where.from, where.to - where.from, table.str());
    file.close();
    std::ofstream(argv[1]) << page;
    return 0;
  }
  std::cout << argv[1] << ": the error table must read\n" << table.str();
  return 1;
}
