// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// onnx.Attention: fused attention in the case's own storage type, the reference in double.
#include "golden.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/core/eigen.hpp>

#include <limits>

namespace {

using golden::answers;
using golden::test_case;

/// Owned elements and how they lie.
template <class S>
struct block {
  posenc::shape shape;
  posenc::strides steps;
  std::vector<S> data;

  block(const posenc::shape& s, const posenc::strides& by)
      : shape(s), steps(by), data(static_cast<std::size_t>(s.elements())) {}
  /// [batch, heads, tokens, dim], or [batch, tokens, heads * dim] with a count of heads.
  block(const golden::tensor& t, std::int64_t heads) {
    const bool rank4 = t.shape.size() == 4;
    shape =
        rank4 ? posenc::shape{.batch = t.extent(0), .tokens = t.extent(2), .heads = t.extent(1), .dim = t.extent(3)}
              : posenc::shape{.batch = t.extent(0), .tokens = t.extent(1), .heads = heads, .dim = t.extent(2) / heads};
    steps = rank4 ? posenc::head_major(shape) : posenc::token_major(shape);
    for (const double v : t.values) data.push_back(posenc::narrow<S>(v));
  }
  [[nodiscard]] posenc::view<S> view() { return {data.data(), shape, steps}; }
  [[nodiscard]] posenc::view<const S> view() const { return {data.data(), shape, steps}; }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> out;
    for (const S& v : data) out.push_back(static_cast<double>(posenc::widen(v)));
    return out;
  }
};

/// past, then now, as [batch, heads, tokens, dim].
template <class S>
block<S> joined(const block<S>& past, const block<S>& now) {
  posenc::shape shape = now.shape;
  shape.tokens += past.shape.tokens;
  block<S> out(shape, posenc::head_major(shape));
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      for (std::int64_t h = 0; h < shape.heads; ++h)
        for (std::int64_t d = 0; d < shape.dim; ++d)
          out.view()(b, t, h, d) =
              t < past.shape.tokens ? past.view()(b, t, h, d) : now.view()(b, t - past.shape.tokens, h, d);
  return out;
}

/// The mask [batch or 1, heads or 1, queries, keys]; columns that the case leaves out hide their keys.
template <class M>
struct mask_block {
  posenc::mask_shape shape;
  std::vector<M> data;

  mask_block(const golden::tensor& t, std::int64_t keys, M hidden) {
    const std::size_t rank = t.shape.size();
    const std::int64_t columns = t.extent(rank - 1);
    shape = {.batch = rank == 4 ? t.extent(0) : 1,
             .heads = rank >= 3 ? t.extent(rank - 3) : 1,
             .queries = t.extent(rank - 2),
             .keys = keys};
    for (std::int64_t line = 0; line < shape.batch * shape.heads * shape.queries; ++line)
      for (std::int64_t k = 0; k < keys; ++k)
        data.push_back(k < columns ? posenc::narrow<M>(t.values[static_cast<std::size_t>(line * columns + k)])
                                   : hidden);
  }
};

/// Calls f(policy) with the mask of the case, if it has one, before `rest` (a softcap comes after the mask).
template <class S, class F>
void with_mask(const test_case& c, std::int64_t keys, const posenc::run_time_policy<>& rest, F&& f) {
  if (!c.has_input("attn_mask")) return f(rest);
  if (c.text("attn_mask_dtype") == "bool") {
    const mask_block<std::uint8_t> m(c.input("attn_mask"), keys, 0);
    return f(posenc::compose(posenc::boolean_mask<std::uint8_t>(m.data.data(), m.shape), rest));
  }
  const mask_block<S> m(c.input("attn_mask"), keys, posenc::narrow<S>(-std::numeric_limits<double>::infinity()));
  f(posenc::compose(posenc::additive_mask<S>(m.data.data(), m.shape), rest));
}

/// A case with its data in storage S.
template <class S>
struct problem {
  block<S> q;
  block<S> k;
  block<S> v;
  std::vector<std::int64_t> lengths;
  posenc::run_time_policy<> rules;
  posenc::positions query_at;

  explicit problem(const test_case& c)
      : q(c.input("Q"), c.integer("q_num_heads", 0)),
        k(c.input("K"), c.integer("kv_num_heads", 0)),
        v(c.input("V"), c.integer("kv_num_heads", 0)) {
    const std::int64_t past = c.has_input("past_key") ? c.input("past_key").extent(2) : 0;
    if (past > 0) {
      k = joined(block<S>(c.input("past_key"), 0), k);
      v = joined(block<S>(c.input("past_value"), 0), v);
    }
    rules.softcap = c.number("softcap", 0);
    rules.masks.causal = c.integer("is_causal", 0) != 0;
    if (c.has_input("nonpad_kv_seqlen")) {
      lengths = c.input("nonpad_kv_seqlen").integers();
      rules.masks.cache.emplace(lengths);
    }
    // Keys stand at their index; where the first query stands is what the alignment says.
    if (rules.masks.causal && c.choice<bool>("causal_alignment", {{"top_left", false}, {"past_offset", true}}))
      query_at = posenc::positions::from(past);
    if (c.has("softcap_order") && c.text("softcap_order") != "mask_then_cap")
      throw std::runtime_error("softcap_order " + c.text("softcap_order") + " is not known");
  }
  problem(const problem&) = delete;  // `rules` points into `lengths`
  problem& operator=(const problem&) = delete;

  [[nodiscard]] block<S> output() const {
    posenc::shape s = q.shape;
    s.dim = v.shape.dim;
    return {s, q.steps == posenc::token_major(q.shape) ? posenc::token_major(s) : posenc::head_major(s)};
  }
};

template <class S>
void fused(const test_case& c, answers& a) {
  const problem<S> p(c);
  block<S> y = p.output();
  posenc::attention_options<float> options{.query_positions = p.query_at};
  if (c.has("scale")) options.scale = c.number("scale");
  with_mask<S>(c, p.k.shape.tokens, p.rules, [&](const auto& policy) {
    posenc::attention(p.q.view(), p.k.view(), p.v.view(), y.view(), policy, options);
  });
  a.add("Y", y.values(), "attention");
  a.add("present_key", p.k.values());
  a.add("present_value", p.v.values());
}

/// Y, and the scores at the stage that qk_matmul_output_mode names.
void reference(const test_case& c, answers& a) {
  problem<double> p(c);
  block<double> y = p.output();
  const posenc::shape score_shape{
      .batch = p.q.shape.batch, .tokens = p.q.shape.tokens, .heads = p.q.shape.heads, .dim = p.k.shape.tokens};
  block<double> logits(score_shape, posenc::head_major(score_shape));
  block<double> weights(score_shape, posenc::head_major(score_shape));
  posenc::reference_options<double> options{
      .query_positions = p.query_at, .logits = logits.view(), .weights = weights.view()};
  if (c.has("scale")) options.scale = c.number("scale");
  const auto run = [&](const auto& policy) {
    posenc::attention_reference(std::as_const(p).q.view(), std::as_const(p).k.view(), std::as_const(p).v.view(),
                                y.view(), policy, options);
  };
  with_mask<double>(c, p.k.shape.tokens, p.rules, run);
  a.add("Y", y.values(), "attention_reference");
  switch (c.integer("qk_matmul_output_mode", 0)) {
    case 0: run(posenc::run_time_policy<>{}); break;
    case 1:
      p.rules.softcap = 0;
      with_mask<double>(c, p.k.shape.tokens, p.rules, run);
      break;
    case 2: break;
    case 3: return a.add("qk_matmul_output", weights.values());
    default: throw std::runtime_error("qk_matmul_output_mode is not known");
  }
  a.add("qk_matmul_output", logits.values());
}

void onnx_attention(const test_case& c, answers& a) {
  if (c.text("dtype") == "float16") {
    fused<Eigen::half>(c, a);
  } else if (c.text("dtype") == "float32") {
    fused<float>(c, a);
  } else {
    throw golden::unsupported("dtype " + c.text("dtype"));
  }
  reference(c, a);
}

const golden::registration ops{{"onnx.Attention", onnx_attention}};

}  // namespace
