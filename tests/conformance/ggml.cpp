// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Op rope.ggml: ggml's rotary operator from its raw arguments, called once or twice.
#include "golden.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/models/ggml_rope.hpp>

#include <algorithm>

namespace {

using golden::answers;
using golden::test_case;

posenc::models::ggml_rope_arguments arguments(const test_case& c) {
  posenc::models::ggml_rope_arguments a{.head_dim = c.integer("ne0"), .n_dims = c.integer("n_dims")};
  a.mode = static_cast<posenc::models::ggml_rope_mode>(c.integer("mode"));
  a.n_ctx_orig = c.integer("n_ctx_orig");
  a.freq_base = c.number("freq_base");
  a.freq_scale = c.number("freq_scale");
  a.ext_factor = c.number("ext_factor");
  a.attn_factor = c.number("attn_factor");
  a.beta_fast = c.number("beta_fast");
  a.beta_slow = c.number("beta_slow");
  if (c.has("sections")) a.sections = c.params().at("sections").get<std::array<std::int64_t, 4>>();
  if (c.has_input("freq_factors")) a.freq_factors = c.input("freq_factors").values;
  return a;
}

/// Positions [tokens], or [4, tokens] for the modes with sections.
struct places {
  std::vector<std::int64_t> ids;
  int axes;
  explicit places(const golden::tensor& t)
      : ids(t.integers()), axes(t.shape.size() == 2 ? static_cast<int>(t.extent(0)) : 1) {}
  [[nodiscard]] posenc::positions at() const {
    return axes == 1 ? posenc::positions::listed(ids) : posenc::positions::axes(ids, axes);
  }
};

template <class T>
struct two_calls {
  std::vector<T> first;
  std::vector<T> out;
};

/// The operator, and again where the case says so: forward is a context shift as llama.cpp performs it, magnitude
/// included; back is the gradient.
template <class T>
two_calls<T> called(const test_case& c, const posenc::rope_options& o) {
  const posenc::rope<T> encoder(o);
  const golden::tensor& x = c.input("x");
  const posenc::shape s{.tokens = x.extent(0), .dim = x.extent(1)};
  two_calls<T> r{x.as<T>(), {}};
  encoder.rotate(posenc::view(r.first.data(), s), places(c.input("positions")).at());
  r.out = r.first;
  if (!c.has("second_call")) return r;
  const places second(c.input("second_positions"));
  if (c.choice<bool>("second_call", {{"forward", true}, {"back", false}})) {
    encoder.rotate(posenc::view(r.out.data(), s), second.at());
  } else {
    encoder.adjoint(posenc::view(r.out.data(), s), second.at());
  }
  return r;
}

void ggml(const test_case& c, answers& a) {
  const auto arguments_of_case = arguments(c);
  const auto exact = called<double>(c, posenc::models::ggml_rope_options(arguments_of_case));
  a.add("out", exact.out);
  a.add("out_peer", exact.out);
  a.add("first_peer", exact.first);
  if (!c.wants_peer_arithmetic("out_peer")) return;
  const auto peer =
      called<float>(c, posenc::models::ggml_rope_options(arguments_of_case, posenc::angle_mode::ggml_recurrence));
  a.add_peer("ggml recurrence", "out_peer", peer.out);
  a.add_peer("ggml recurrence", "first_peer", peer.first);
}

const golden::registration ops{{"rope.ggml", ggml}};

}  // namespace
