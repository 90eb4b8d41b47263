// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// onnx.RotaryEmbedding: rows of cos and sin come from the model, so the rotation reads them where they are.
#include "golden.hpp"

#include <posenc/encoders/rope_table.hpp>

#include <numeric>

namespace {

using golden::answers;
using golden::test_case;

/// The standard's two forms: [batch, heads, tokens, dim], or [batch, tokens, heads * dim] with num_heads.
posenc::view<float> data_view(const test_case& c, std::vector<float>& x) {
  const golden::tensor& t = c.input("input");
  if (t.shape.size() == 4) {
    const posenc::shape s{.batch = t.extent(0), .tokens = t.extent(2), .heads = t.extent(1), .dim = t.extent(3)};
    return {x.data(), s, posenc::head_major(s)};
  }
  const std::int64_t heads = c.integer("num_heads");
  return {x.data(), {.batch = t.extent(0), .tokens = t.extent(1), .heads = heads, .dim = t.extent(2) / heads}};
}

/// The row of every token. Without ids the caches are [batch, tokens, pairs]: row b * tokens + t.
std::vector<std::int64_t> rows_of_tokens(const test_case& c, const posenc::view<float>& x) {
  if (c.has_input("position_ids")) return c.input("position_ids").integers();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(x.batch() * x.tokens()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void rotary_embedding(const test_case& c, answers& a) {
  if (c.text("dtype") != "float32") throw golden::unsupported("dtype " + c.text("dtype"));
  const auto cos = c.input("cos_cache").as<float>();
  const auto sin = c.input("sin_cache").as<float>();
  const auto layout = c.integer("interleaved", 0) != 0 ? posenc::interleaved : posenc::half_split;
  auto y = c.input("input").as<float>();
  const auto x = data_view(c, y);
  const std::int64_t named = c.integer("rotary_embedding_dim", 0);
  const std::int64_t rotated = named == 0 ? x.dim() : named;
  const auto rows = rows_of_tokens(c, x);
  const std::int64_t pairs = rotated / 2;
  const posenc::rope_table_view<float> table(
      layout, x.dim(), rotated, 0,
      {.cos = cos.data(), .sin = sin.data(), .step = pairs, .count = static_cast<std::int64_t>(cos.size()) / pairs});
  table.rotate(x, posenc::positions::listed(rows, x.batch()));
  a.add("output", y, "lanes");
  // A channel step other than 1 has the pairs turned one at a time.
  const posenc::strides apart{2 * x.steps().batch, 2 * x.steps().token, 2 * x.steps().head, 2};
  const auto packed = c.input("input").as<float>();
  std::vector<float> wide(2 * packed.size());
  for (std::size_t i = 0; i < packed.size(); ++i) wide[2 * i] = packed[i];
  table.rotate(posenc::view{wide.data(), x.extents(), apart}, posenc::positions::listed(rows, x.batch()));
  for (std::size_t i = 0; i < packed.size(); ++i) y[i] = wide[2 * i];
  a.add("output", y, "pairs");
}

const golden::registration ops{{"onnx.RotaryEmbedding", rotary_embedding}};

}  // namespace
