// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// onnx.RotaryEmbedding: rows of cos and sin come from the model, so the rotation kernels are given them directly.
#include "golden.hpp"

#include <posenc/core/view.hpp>
#include <posenc/kernels/rotate.hpp>

namespace {

using golden::answers;
using golden::test_case;

/// The standard's two forms: [batch, heads, tokens, dim], or [batch, tokens, heads * dim] with num_heads.
posenc::view<const float> input_view(const test_case& c, const std::vector<float>& x) {
  const golden::tensor& t = c.input("input");
  if (t.shape.size() == 4) {
    const posenc::shape s{.batch = t.extent(0), .tokens = t.extent(2), .heads = t.extent(1), .dim = t.extent(3)};
    return {x.data(), s, posenc::head_major(s)};
  }
  const std::int64_t heads = c.integer("num_heads");
  return {x.data(), {.batch = t.extent(0), .tokens = t.extent(1), .heads = heads, .dim = t.extent(2) / heads}};
}

/// Rotates the first `rotated` channels of all heads of one token, on SIMD lanes or one pair at a time.
void rotate_token(const float* in, float* out, std::int64_t head_step, std::int64_t heads, std::int64_t rotated,
                  const float* cos, const float* sin, bool interleaved, bool lanes) {
  using Arch = posenc::simd::default_arch;
  const std::int64_t pairs = rotated / 2;
  if (!lanes) {
    for (std::int64_t h = 0; h < heads; ++h)
      posenc::kernels::rotate_pairs(in + h * head_step, 1, out + h * head_step, 1, interleaved ? 1 : pairs,
                                    interleaved ? 2 : 1, cos, sin, pairs);
  } else if (interleaved) {
    std::vector<float> c;
    std::vector<float> s;
    for (std::int64_t i = 0; i < pairs; ++i) {
      c.insert(c.end(), {cos[i], cos[i]});
      s.insert(s.end(), {-sin[i], sin[i]});
    }
    posenc::kernels::rotate_interleaved<Arch>(in, head_step, out, head_step, heads, c.data(), s.data(), pairs);
  } else {
    posenc::kernels::rotate_half<Arch>(in, head_step, out, head_step, heads, cos, sin, pairs, pairs);
  }
}

void rotary_embedding(const test_case& c, answers& a) {
  if (c.text("dtype") != "float32") throw golden::unsupported("dtype " + c.text("dtype"));
  const auto x = c.input("input").as<float>();
  const auto cos = c.input("cos_cache").as<float>();
  const auto sin = c.input("sin_cache").as<float>();
  const auto in = input_view(c, x);
  const std::int64_t named = c.integer("rotary_embedding_dim", 0);
  const std::int64_t rotated = named == 0 ? in.dim() : named;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(in.batch() * in.tokens()));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  if (c.has_input("position_ids")) rows = c.input("position_ids").integers();
  for (const bool lanes : {true, false}) {
    std::vector<float> y = x;
    const posenc::view out(y.data(), in.extents(), in.steps());
    for (std::int64_t b = 0; b < in.batch(); ++b)
      for (std::int64_t t = 0; t < in.tokens(); ++t) {
        const std::int64_t row = rows[static_cast<std::size_t>(b * in.tokens() + t)] * (rotated / 2);
        rotate_token(in.row(b, t, 0), out.row(b, t, 0), in.steps().head, in.heads(), rotated, cos.data() + row,
                     sin.data() + row, c.integer("interleaved", 0) != 0, lanes);
      }
    a.add("output", y, lanes ? "lanes" : "pairs");
  }
}

const golden::registration ops{{"onnx.RotaryEmbedding", rotary_embedding}};

}  // namespace
