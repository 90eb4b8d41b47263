// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/complex_order.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <complex>

using posenc::complex_order;
using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {

struct parts {
  std::vector<double> re;
  std::vector<double> im;
};

template <class T>
parts lookup(const complex_order<T>& e, const std::vector<int>& tokens, std::int64_t first) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const posenc::shape s{.tokens = n, .dim = e.dim()};
  parts out{std::vector<double>(static_cast<std::size_t>(s.elements()), 99.0), {}};
  out.im = out.re;
  e.lookup(posenc::view{out.re.data(), s}, posenc::view{out.im.data(), s}, tokens, positions::from(first));
  return out;
}

}  // namespace

TEST_CASE("complex_order: r exp(i (omega p + theta)), tables per word, shared and left out", "[complex_order]") {
  for (const std::int64_t dim : {1, 3, 130})
    for (const bool shared : {false, true})
      for (const int theta_kind : {0, 1, 2}) {
        CAPTURE(dim, shared, theta_kind);
        const auto r = values<double>(4 * dim);
        const auto omega = values<double>(shared ? dim : 4 * dim, 1);
        const auto theta = values<double>(theta_kind == 2 ? 4 * dim : theta_kind * dim, 2);
        const complex_order<double> e{{.vocabulary = 4, .dim = dim}, {r, omega, theta}};
        const std::vector<int> tokens{0, 3, 2, 3, 1};
        for (const std::int64_t first : {std::int64_t{1}, std::int64_t{-2}, std::int64_t{5000}}) {
          const parts got = lookup(e, tokens, first);
          posenc_test::worst worst;
          for (std::size_t t = 0; t < 5; ++t)
            for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) {
              const std::size_t word = static_cast<std::size_t>(tokens[t]) * static_cast<std::size_t>(dim) + d;
              const long double phase =
                  theta_kind == 0 ? 0 : static_cast<long double>(theta[theta_kind == 1 ? d : word]);
              const long double angle = static_cast<long double>(omega[shared ? d : word]) *
                                            static_cast<long double>(first + static_cast<std::int64_t>(t)) +
                                        phase;
              const std::size_t i = t * static_cast<std::size_t>(dim) + d;
              worst.see(std::abs(got.re[i] - r[word] * static_cast<double>(std::cos(angle))), angle);
              worst.see(std::abs(got.im[i] - r[word] * static_cast<double>(std::sin(angle))), angle);
            }
          INFO(worst);
          CHECK(worst.error < 2e-15 + 1e-18 * static_cast<double>(std::abs(first)));
        }
      }
}

TEST_CASE("complex_order: halves of one row, heads, batches of tokens", "[complex_order]") {
  const auto r = values<float>(6);
  const auto omega = values<float>(6, 1);
  const complex_order<float> e{{.vocabulary = 2, .dim = 3}, {r, omega, {}}};
  CHECK(e.vocabulary() == 2);
  CHECK(e.tables().theta.empty());
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 3};
  const posenc::strides step{.batch = 24, .token = 12, .head = 6, .dim = 1};
  std::vector<float> both(48, 99.0f);
  const posenc::view re{both.data(), s, step};
  const posenc::view im{both.data() + 3, s, step};
  const std::vector<std::int64_t> tokens{1, 0, 0, 1};
  e.lookup(re, im, tokens, positions::from(7));
  posenc_test::worst worst;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 2; ++t)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t d = 0; d < 3; ++d) {
          const auto i = static_cast<std::size_t>(3 * tokens[static_cast<std::size_t>(2 * b + t)] + d);
          const double angle = static_cast<double>(omega[i]) * static_cast<double>(7 + t);
          worst.see(std::abs(static_cast<double>(re(b, t, h, d)) - static_cast<double>(r[i]) * std::cos(angle)), 0);
          worst.see(std::abs(static_cast<double>(im(b, t, h, d)) - static_cast<double>(r[i]) * std::sin(angle)), 0);
        }
  CHECK(worst.error < 3.1e-8);
  CHECK(e.describe().parameters == 12);
  CHECK(e.describe().table_bytes == 48);
  std::vector<Eigen::half> half_re(3);
  std::vector<Eigen::half> half_im(3);
  const posenc::shape one{.tokens = 1, .dim = 3};
  e.lookup(posenc::view{half_re.data(), one}, posenc::view{half_im.data(), one}, std::vector<int>{1},
           positions::from(0));
  for (std::size_t d = 0; d < 3; ++d) {
    CHECK(half_re[d] == Eigen::half(r[3 + d]));
    CHECK(half_im[d] == Eigen::half(0.0f));
  }
}

TEST_CASE("complex_order: derivatives by r, omega and theta", "[complex_order]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector3d>;
  const double r0 = 1.25;
  const double w0 = -0.375;
  const double t0 = 0.5;
  const std::vector<dual> r{dual(r0, 3, 0)};
  const std::vector<dual> omega{dual(w0, 3, 1)};
  const std::vector<dual> theta{dual(t0, 3, 2)};
  const complex_order<dual> e{{.vocabulary = 1, .dim = 1}, {r, omega, theta}};
  dual re;
  dual im;
  const posenc::shape one{.tokens = 1, .dim = 1};
  e.lookup(posenc::view{&re, one}, posenc::view{&im, one}, std::vector<int>{0}, positions::from(4));
  const double a = 4 * w0 + t0;
  CHECK(std::abs(re.value() - r0 * std::cos(a)) < 1e-15);
  CHECK((re.derivatives() - Eigen::Vector3d(std::cos(a), -4 * r0 * std::sin(a), -r0 * std::sin(a))).norm() < 1e-14);
  CHECK((im.derivatives() - Eigen::Vector3d(std::sin(a), 4 * r0 * std::cos(a), r0 * std::cos(a))).norm() < 1e-14);
}

TEST_CASE("complex_order refuses before it writes", "[complex_order]") {
  const std::vector<float> six(6);
  const std::vector<float> five(5);
  const auto make = [](const posenc::complex_order_options& o, const posenc::complex_order_tables<float>& t) {
    return refusal([&] { complex_order<float>{o, t}; });
  };
  CHECK(make({.vocabulary = 0, .dim = 3}, {six, six, six}) ==
        "posenc::complex_order: vocabulary must be at least 1, got 0");
  CHECK(make({.vocabulary = 2, .dim = 0}, {six, six, six}) == "posenc::complex_order: dim must be at least 1, got 0");
  CHECK(make({.vocabulary = 2, .dim = 3}, {five, six, six}) ==
        "posenc::complex_order: r must hold vocabulary * dim elements, got 5");
  CHECK(make({.vocabulary = 2, .dim = 3}, {six, five, six}) ==
        "posenc::complex_order: omega must hold vocabulary * dim or dim elements, got 5");
  CHECK(make({.vocabulary = 2, .dim = 3}, {six, six, five}) ==
        "posenc::complex_order: theta must hold vocabulary * dim or dim elements, or none, got 5");
  const complex_order<float> e{{.vocabulary = 2, .dim = 3}, {six, six, six}};
  std::vector<float> x(12, 5.0f);
  const auto before = x;
  const posenc::shape s{.tokens = 2, .dim = 3};
  const posenc::view re{x.data(), s};
  const posenc::view im{x.data() + 6, s};
  const std::vector<int> good{0, 1};
  CHECK(refusal<std::out_of_range>([&] {
          e.lookup(re, im, std::vector<int>{0, 2}, positions{});
        }) == "posenc::complex_order::lookup: id must lie in 0..1, got 2");
  CHECK(refusal([&] {
          e.lookup(re, im, std::vector<int>{0, 0, 0}, positions{});
        }).find("ids must list") != std::string::npos);
  CHECK(refusal([&] {
          e.lookup(re, posenc::view{x.data() + 3, s}, good, positions{});
        }) == "posenc::complex_order::lookup: im must not overlap re, got overlapping memory");
  CHECK(refusal([&] {
          e.lookup(re, posenc::view{x.data() + 6, {.tokens = 2, .dim = 2}}, good, positions{});
        }).find("im must have the shape of re") != std::string::npos);
  CHECK(refusal([&] {
          e.lookup(re, im, good, positions::listed(std::vector<std::int64_t>{1}));
        }).find("must list one id per token") != std::string::npos);
  CHECK(x == before);
}
