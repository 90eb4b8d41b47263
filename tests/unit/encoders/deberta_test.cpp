// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/deberta.hpp>

#include "support/catch.hpp"
#include "unit/encoders/content_case.hpp"

#include <algorithm>
#include <cmath>

namespace {

using dense::extent;

/// The bucket by long double, with the published formula.
extent bucket(extent r, extent buckets, extent most, bool microsoft) {
  if (buckets <= 0) return r;
  if (microsoft) r = std::clamp(r, -(most - 1), most - 1);
  const extent mid = buckets / 2;
  const extent n = r < 0 ? -r : r;
  if (n <= mid) return r;
  const long double place = std::log(static_cast<long double>(n) / static_cast<long double>(mid)) /
                            std::log(static_cast<long double>(most - 1) / static_cast<long double>(mid)) *
                            static_cast<long double>(mid - 1);
  const extent b = mid + static_cast<extent>(std::ceil(place - 1e-12L));
  return r < 0 ? -b : b;
}

template <class C>
void check(const content_case::sizes& s, posenc::deberta_options o, bool c2p, bool p2c) {
  o.heads = s.heads;
  o.head_dim = s.dim;
  const extent span = o.position_buckets > 0 ? o.position_buckets : o.max_relative_positions;
  std::mt19937 random(3);
  const auto key = posenc_test::random_stored<C>(random, {s.heads, 2 * span, 1, s.dim});
  const auto query = posenc_test::random_stored<C>(random, {s.heads, 2 * span, 1, s.dim});
  const std::span<const C> none;
  const posenc::deberta<C> encoder(o, c2p ? std::span<const C>(key.data) : none,
                                   p2c ? std::span<const C>(query.data) : none);
  const bool microsoft = o.far_rule == posenc::deberta_far_rule::microsoft;
  const auto place = [&](extent r) {
    return std::clamp(bucket(r, o.position_buckets, o.max_relative_positions, microsoft) + span, extent{0},
                      2 * span - 1);
  };
  const bool paper = o.p2c_index == posenc::deberta_p2c_index::paper;
  content_case::check<C>(
      s, encoder,
      [&](extent h, extent, extent, const double* q, const double* k, extent distance) {
        double sum = 0;
        const auto a = static_cast<std::size_t>((h * 2 * span + place(-distance)) * s.dim);
        const auto b = static_cast<std::size_t>((h * 2 * span + place(paper ? distance : -distance)) * s.dim);
        for (extent d = 0; d < s.dim; ++d) {
          const auto at = static_cast<std::size_t>(d);
          if (c2p) sum += q[d] * static_cast<double>(key.data[a + at]);
          if (p2c) sum += k[d] * static_cast<double>(query.data[b + at]);
        }
        return sum;
      },
      std::same_as<C, float> ? 2e-6 : 1e-13);
}

}  // namespace

TEMPLATE_TEST_CASE("DeBERTa's terms are those of the definition", "", float, double) {
  using posenc::deberta_far_rule;
  using posenc::deberta_p2c_index;
  const posenc::deberta_options logarithmic{.position_buckets = 16, .max_relative_positions = 40};
  const posenc::deberta_options exact{.position_buckets = -1, .max_relative_positions = 24};
  for (const bool p2c : {true, false}) {
    check<TestType>({.heads = 4, .kv_heads = 2, .queries = 140, .keys = 140}, logarithmic, true, p2c);
    check<TestType>({.heads = 2, .kv_heads = 2, .queries = 9, .keys = 133, .first_query = 60, .dim = 10}, exact, true,
                    p2c);
  }
  posenc::deberta_options paper = logarithmic;
  paper.p2c_index = deberta_p2c_index::paper;
  paper.far_rule = deberta_far_rule::microsoft;
  check<TestType>({.heads = 2, .kv_heads = 1, .queries = 100, .keys = 129, .first_key = -20}, paper, true, true);
  check<TestType>({.heads = 3, .kv_heads = 3, .queries = 1, .keys = 140, .first_query = 139, .dim = 5}, paper, false,
                  true);
}

TEST_CASE("positions beyond the trained span: row 1 for Microsoft's code, row 0 for Hugging Face's") {
  const posenc::deberta_options o{.heads = 1, .head_dim = 1};
  const posenc::deberta<double> hf(o, std::vector<double>(512), std::vector<double>(512));
  posenc::deberta_options m = o;
  m.far_rule = posenc::deberta_far_rule::microsoft;
  const posenc::deberta<double> microsoft(m, std::vector<double>(512), std::vector<double>(512));
  int differing = 0;
  for (std::int64_t r = -2048; r <= 2048; ++r) differing += hf.table_row(r) != microsoft.table_row(r);
  CHECK(differing == 1537);
  CHECK(hf.table_row(-512) == 0);
  CHECK(microsoft.table_row(-2048) == 1);
  CHECK(hf.table_row(2048) == 511);
  CHECK(microsoft.table_row(2048) == 511);
  CHECK(hf.scale() == 1 / std::sqrt(3.0));
}

TEST_CASE("deberta refuses impossible options and tables of another size") {
  using posenc::deberta;
  const std::vector<float> right(2 * 2 * 8 * 4);
  CHECK_THROWS_AS(
      deberta<float>({.heads = 0, .head_dim = 4, .position_buckets = 8, .max_relative_positions = 16}, right, right),
      std::invalid_argument);
  CHECK_THROWS_AS(
      deberta<float>({.heads = 2, .head_dim = 4, .position_buckets = 8, .max_relative_positions = 4}, right, right),
      std::invalid_argument);
  CHECK_THROWS_AS(
      deberta<float>({.heads = 2, .head_dim = 4, .position_buckets = 8, .max_relative_positions = 16}, {}, {}),
      std::invalid_argument);
  CHECK_THROWS_AS(
      deberta<float>({.heads = 2, .head_dim = 4, .position_buckets = 6, .max_relative_positions = 16}, right, right),
      std::invalid_argument);
}
