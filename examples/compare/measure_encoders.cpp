// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The second table: the seven encoders on this machine. Rounds go through all encoders in turn, so that a busy machine
// disturbs all alike; figures are medians over the rounds.

#include "compare/results.hpp"
#include "support/median.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/irope.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>

namespace compare {

namespace {
namespace pe = posenc_examples;

constexpr std::int64_t heads = 8;
constexpr std::int64_t head_dim = 64;
constexpr std::int64_t width = heads * head_dim;
constexpr std::int64_t prefill_keys = 512;
constexpr std::int64_t decode_keys = 4096;
constexpr std::int64_t rounds = 31;
constexpr std::int64_t irope_layers = 4;

std::vector<float> noise(std::int64_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& v : values) v = normal(generator);
  return values;
}

/// Queries, keys and values of one layer, and room for what encoders write.
struct layer_data {
  std::int64_t queries;
  std::int64_t keys;
  std::vector<float> q = noise(queries * width, 1);
  std::vector<float> k = noise(keys * width, 2);
  std::vector<float> v = noise(keys * width, 3);
  std::vector<float> out = std::vector<float>(static_cast<std::size_t>(queries * width));

  static posenc::view<float> heads_of(std::vector<float>& x) {
    return {x.data(),
            {.batch = 1, .tokens = static_cast<std::int64_t>(x.size()) / width, .heads = heads, .dim = head_dim}};
  }
  /// The queries stand at the last positions; the keys that came with them are the last ones.
  [[nodiscard]] posenc::positions new_tokens() const { return posenc::positions::from(keys - queries); }
  posenc::view<float> new_keys() {
    return {k.data() + (keys - queries) * width, {.batch = 1, .tokens = queries, .heads = heads, .dim = head_dim}};
  }
  template <class Policy>
  void attend(const Policy& policy) {
    posenc::attention(heads_of(q), heads_of(k), heads_of(v), heads_of(out), policy,
                      {.query_positions = new_tokens(), .key_positions = {}});
  }
};

/// An encoder with its work as closures; `layers` is how many layers one call stands for.
struct subject {
  measured_encoder result;
  std::int64_t layers = 1;
  std::function<void()> work;
  std::function<void(layer_data&)> layer;
  std::vector<double> work_ns, prefill_ns, decode_ns;
};

template <class Encoder>
subject describe(const Encoder& e, std::string options, std::string work) {
  subject s;
  s.result.traits = Encoder::traits;
  s.result.description = e.describe();
  s.result.options = std::move(options);
  s.result.work = std::move(work);
  return s;
}

template <class Encoder>
subject added_to_input(const Encoder& e, std::string options, std::vector<float>& x) {
  subject s = describe(e, std::move(options), "add a row to the embedding");
  s.work = [e, &x] {
    e.embed(posenc::view<float>(x.data(), {.batch = 1, .tokens = prefill_keys, .heads = 1, .dim = width}));
  };
  s.layer = [](layer_data& d) { d.attend(posenc::compose(posenc::causal{})); };
  return s;
}

template <class Encoder>
subject added_to_logits(const Encoder& e, std::string options, std::vector<float>& logits) {
  subject s = describe(e, std::move(options), "add to 512 logits of 8 heads");
  s.work = [e, &logits] {
    for (std::int64_t t = 0; t < prefill_keys; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        posenc::add_bias_row(e, {.head = h, .kv_head = h, .query_index = t, .query_position = t}, 0,
                             std::span<float>(logits));
  };
  s.layer = [policy = posenc::compose(e, posenc::causal{})](layer_data& d) { d.attend(policy); };
  return s;
}

std::vector<subject> make_subjects(layer_data& rows, std::vector<float>& x, std::vector<float>& logits) {
  std::vector<subject> all;
  const std::string wide = std::to_string(width);
  all.push_back(added_to_input(posenc::sinusoidal<float>({.dim = width}), "width " + wide, x));
  all.push_back(
      added_to_input(posenc::learned<float>({.rows = decode_keys, .dim = width}, noise(decode_keys * width, 4)),
                     std::to_string(decode_keys) + " rows of " + wide, x));
  const std::vector<float> table = noise(32 * heads, 5);
  all.push_back(added_to_logits(posenc::relative_bucket<float>({.heads = heads, .bidirectional = false}, table),
                                "32 buckets, distance 128", logits));
  all.push_back(added_to_logits(posenc::alibi<float>(heads), "8 heads", logits));

  const posenc::rope<float> rope({.head_dim = head_dim});
  subject turned = describe(rope, "half pairing", "rotate 8 heads of q and k");
  turned.work = [rope, &rows] {
    rope.rotate(layer_data::heads_of(rows.q));
    rope.rotate(layer_data::heads_of(rows.k));
  };
  turned.layer = [rope, policy = posenc::compose(rope, posenc::causal{})](layer_data& d) {
    rope.rotate(d.new_keys(), d.new_tokens());
    d.attend(policy);
  };
  all.push_back(std::move(turned));

  subject none = describe(posenc::nope{}, "", "");
  none.layer = [](layer_data& d) { d.attend(posenc::compose(posenc::causal{})); };
  all.push_back(std::move(none));

  const posenc::irope<float> mixed({.layers = irope_layers, .rope = {.head_dim = head_dim}});
  subject layered = describe(mixed, "3 of 4 layers, chunk 8192", "the same, mean of 4 layers");
  layered.layers = irope_layers;
  layered.work = [mixed, &rows] {
    for (std::int64_t l = 0; l < irope_layers; ++l) {
      mixed.rotate(l, layer_data::heads_of(rows.q));
      mixed.rotate(l, layer_data::heads_of(rows.k));
    }
  };
  layered.layer = [mixed](layer_data& d) {
    for (std::int64_t l = 0; l < irope_layers; ++l) {
      mixed.rotate(l, d.new_keys(), d.new_tokens());
      mixed.visit_layer(l, [&](const auto& policy) { d.attend(policy); });
    }
  };
  all.push_back(std::move(layered));
  return all;
}

/// Processor time, not the clock on the wall: other programs on the machine then count for little.
template <class F>
double nanoseconds(F&& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) * (1e9 / CLOCKS_PER_SEC);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown";
}

std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

void finish(subject& s, const subject& none) {
  s.result.ns_per_token = s.work ? pe::median(s.work_ns) / static_cast<double>(prefill_keys * s.layers) : 0.0;
  const auto layer = [&](const std::vector<double>& mine, const std::vector<double>& theirs, double& us,
                         double& ratio) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < mine.size(); ++i) ratios.push_back(mine[i] / static_cast<double>(s.layers) / theirs[i]);
    us = pe::median(mine) / static_cast<double>(s.layers) / 1000;
    ratio = pe::median(ratios);
  };
  layer(s.prefill_ns, none.prefill_ns, s.result.prefill_us, s.result.prefill_ratio);
  layer(s.decode_ns, none.decode_ns, s.result.decode_us, s.result.decode_ratio);
}

}  // namespace

measure_results measure_encoders(pe::progress& progress) {
  progress.stage("Measuring the encoders");
  layer_data rows{.queries = prefill_keys, .keys = prefill_keys};
  layer_data prefill{.queries = prefill_keys, .keys = prefill_keys};
  layer_data decode{.queries = 1, .keys = decode_keys};
  std::vector<float> x = noise(prefill_keys * width, 6);
  std::vector<float> logits(prefill_keys);
  std::vector<subject> all = make_subjects(rows, x, logits);

  // The first round warms up and is not counted; each round starts with another encoder.
  for (std::int64_t round = 0; round <= rounds; ++round) {
    progress.step("round " + std::to_string(round) + " of " + std::to_string(rounds));
    for (std::size_t i = 0; i < all.size(); ++i) {
      subject& s = all[(i + static_cast<std::size_t>(round)) % all.size()];
      const double work = s.work ? nanoseconds(s.work) : 0.0;
      const double whole = nanoseconds([&] { s.layer(prefill); });
      const double step = nanoseconds([&] { s.layer(decode); });
      if (round == 0) continue;
      s.work_ns.push_back(work);
      s.prefill_ns.push_back(whole);
      s.decode_ns.push_back(step);
    }
  }

  measure_results results{.cpu = cpu_name(),
                          .instructions = posenc::simd::default_arch::instructions::name(),
                          .compiler = compiler_name(),
                          .heads = heads,
                          .head_dim = head_dim,
                          .prefill_keys = prefill_keys,
                          .decode_keys = decode_keys,
                          .rounds = rounds,
                          .encoders = {}};
  const auto none =
      std::find_if(all.begin(), all.end(), [](const subject& s) { return s.result.traits.site == posenc::site::none; });
  for (subject& s : all) {
    finish(s, *none);
    results.encoders.push_back(s.result);
  }
  return results;
}

}  // namespace compare
