// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group attention: whole attention calls in double, fused and reference.
#include "golden.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>

namespace {

using golden::answers;
using golden::test_case;

/// A [head, token, dim] array.
posenc::view<const double> heads_first(const golden::tensor& t) {
  const posenc::shape s{.tokens = t.extent(1), .heads = t.extent(0), .dim = t.extent(2)};
  return {t.values.data(), s, posenc::head_major(s)};
}

void attention_alibi(const test_case& c, answers& a) {
  const auto q = heads_first(c.input("q"));
  const auto k = heads_first(c.input("k"));
  const auto v = heads_first(c.input("v"));
  const auto pos_q = c.input("pos_q").integers();
  const auto pos_k = c.input("pos_k").integers();
  const auto named = c.choice<posenc::alibi_form>(
      "form", {{"distance", posenc::alibi_form::symmetric}, {"key_only", posenc::alibi_form::key_only}});
  posenc::run_time_masks masks;
  masks.causal = c.params().at("causal").get<bool>();
  std::vector<std::pair<posenc::alibi_form, std::string>> forms{{named, "named form"}};
  // On causal rows all forms give one output.
  if (masks.causal)
    forms.insert(forms.end(), {{posenc::alibi_form::symmetric, "symmetric"},
                               {posenc::alibi_form::causal, "causal"},
                               {posenc::alibi_form::key_only, "key_only"}});
  const posenc::shape shape{.tokens = q.tokens(), .heads = q.heads(), .dim = v.dim()};
  std::vector<double> out(static_cast<std::size_t>(shape.elements()));
  const posenc::view to(out.data(), shape, posenc::head_major(shape));
  for (const auto& [form, name] : forms) {
    const posenc::run_time_policy<posenc::alibi<double>> policy{
        .bias = posenc::alibi<double>(c.input("slopes").values, form), .masks = masks};
    const auto query_at = posenc::positions::listed(pos_q);
    const auto key_at = posenc::positions::listed(pos_k);
    posenc::attention(q, k, v, to, policy,
                      {.query_positions = query_at, .key_positions = key_at, .scale = c.number("scale")});
    a.add("out", out, "attention, " + name);
    posenc::attention_reference(q, k, v, to, policy,
                                {.query_positions = query_at, .key_positions = key_at, .scale = c.number("scale")});
    a.add("out", out, "attention_reference, " + name);
  }
}

const golden::registration ops{{"attention.alibi", attention_alibi}};

}  // namespace
