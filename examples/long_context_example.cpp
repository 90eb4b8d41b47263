// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// RoPE beyond the trained length: what each scaling makes of the frequencies, and what becomes of cached keys.
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t dim = 128;
bool good = true;

void expect(bool holds, const char* what) {
  if (holds) return;
  good = false;
  std::printf("wrong: %s\n", what);
}
bool near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }

/// One line: the fastest and the slowest pair, how far one turn of the slowest reaches, the magnitude.
void report(const char* name, const posenc::rope<float>& encoder) {
  const double first = encoder.inv_freq().front();
  const double last = encoder.inv_freq().back();
  std::printf("%-28s %9.6f  %.4e  %12.0f  %8.6f  %s\n", name, first, last, 2 * std::acos(-1.0) / last,
              encoder.magnitude(), encoder.depends_on_length() ? "yes" : "no");
}

std::vector<float> waves(std::int64_t n, double step) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
  return x;
}

double dot(const float* a, const float* b) {
  double sum = 0;
  for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Grows the length of a dynamic NTK model with 6000 keys in the cache: how far scores are from those of keys that were
/// rotated for the new length at once, without and with rerotate.
void grow_a_cache() {
  constexpr std::int64_t tokens = 6000;
  const std::vector<float> raw = waves(tokens * dim, 0.37);
  std::vector<float> cached = raw;
  std::vector<float> fresh = raw;
  const posenc::view keys{cached.data(), {.tokens = tokens, .dim = dim}};
  // [grow]
  // 6000 tokens were served, the model now reads on to 12000: a new base, so cached keys are turned by the difference.
  const posenc::dynamic_ntk now{.factor = 2, .max_position_embeddings = 4096, .length = 6000};
  posenc::dynamic_ntk next = now;
  next.length = 12000;
  const posenc::rope<float> before{{.head_dim = 128, .scaling = now}};
  const posenc::rope<float> after{{.head_dim = 128, .scaling = next}};
  before.rotate(keys, posenc::positions::from(0));
  // [/grow]
  std::vector<float> query = waves(dim, 0.91);
  after.rotate(posenc::view(query.data(), {.tokens = 1, .dim = dim}), posenc::positions::from(tokens));
  after.rotate(posenc::view(fresh.data(), {.tokens = tokens, .dim = dim}), posenc::positions::from(0));
  double largest_score = 0;
  const auto worst = [&] {
    double largest = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double right = dot(query.data(), fresh.data() + t * dim);
      largest_score = std::max(largest_score, std::abs(right));
      largest = std::max(largest, std::abs(dot(query.data(), cached.data() + t * dim) - right));
    }
    return largest;
  };
  const double as_cached = worst();
  // [rerotate]
  posenc::rerotate(keys, posenc::positions::from(0), before, after);
  // [/rerotate]
  const double rerotated = worst();
  std::puts("dynamic NTK, 6000 cached keys, length 6000 -> 12000:");
  std::printf("  scores up to %.0f are off by up to %.0f as cached, by %.0e after rerotate\n", largest_score, as_cached,
              rerotated);
  expect(as_cached > 1 && rerotated < 2e-5, "scores after rerotate");
}

/// A key of a model with magnitude A, moved by 100 positions, is the key rotated there at once: A is not applied twice.
void shift_a_cache() {
  const posenc::rope<float> encoder{
      {.head_dim = dim, .base = 1e6, .scaling = posenc::yarn{.factor = 4, .original_max_position_embeddings = 32768}}};
  std::vector<float> moved = waves(dim, 0.37);
  std::vector<float> fresh = moved;
  const posenc::view key{moved.data(), {.tokens = 1, .dim = dim}};
  encoder.rotate(key, posenc::positions::from(5000));
  encoder.shift(key, -100);
  encoder.rotate(posenc::view(fresh.data(), {.tokens = 1, .dim = dim}), posenc::positions::from(4900));
  float worst = 0;
  for (std::size_t i = 0; i < moved.size(); ++i) worst = std::max(worst, std::abs(moved[i] - fresh[i]));
  std::printf("YaRN, a key shifted from 5000 to 4900: off by %.0e from one rotated there\n",
              static_cast<double>(worst));
  expect(worst < 1e-6f, "shift keeps the magnitude");
}

}  // namespace

int main() {
  std::puts("scaling                      fastest    slowest pair   one turn of it magnitude depends on length");
  report("none", posenc::rope<float>{{.head_dim = dim}});

  // [linear]
  // Position interpolation by 4: every pair slower.
  const posenc::rope<float> linear{{.head_dim = 128, .scaling = posenc::linear{4}}};
  // [/linear]
  report("linear 4", linear);
  expect(near(linear.inv_freq()[0], 0.25, 1e-15), "linear divides by the factor");

  // [ntk]
  // The base grows so that the slowest pair is 4 times slower and the fastest stays.
  const posenc::rope<float> ntk{{.head_dim = 128, .scaling = posenc::ntk_aware{4}}};
  // [/ntk]
  report("ntk_aware 4", ntk);
  expect(ntk.inv_freq()[0] == 1 && near(ntk.inv_freq()[63] / linear.inv_freq()[63], 1, 1e-12), "ends of ntk_aware");

  // [dynamic]
  // The same by length: nothing up to 4096; the length is told, never guessed from a call.
  const posenc::rope<float> dynamic{
      {.head_dim = 128, .scaling = posenc::dynamic_ntk{.factor = 2, .max_position_embeddings = 4096, .length = 16384}}};
  // [/dynamic]
  report("dynamic_ntk 2 at 16384", dynamic);
  expect(dynamic.depends_on_length(), "dynamic_ntk depends on the length");

  // [yarn]
  // Qwen 2.5: fast pairs stay, slow ones are divided by 4, cos and sin grow by 1 + 0.1 ln 4.
  const posenc::rope<float> yarn{
      {.head_dim = 128, .base = 1e6, .scaling = posenc::yarn{.factor = 4, .original_max_position_embeddings = 32768}}};
  // [/yarn]
  report("yarn 4, base 1e6", yarn);
  expect(near(yarn.magnitude(), 1.138629436111989, 1e-15), "magnitude of yarn");

  // [deepseek]
  // DeepSeek V3: no magnitude on cos and sin, but a factor on the softmax scale, which goes to attention.
  const posenc::rope<float> deepseek{
      {.head_dim = 64,
       .layout = posenc::interleaved,
       .scaling =
           posenc::yarn{.factor = 40, .original_max_position_embeddings = 4096, .mscale = 1.0, .mscale_all_dim = 1.0}}};
  const double scale = deepseek.softmax_scale_multiplier() / std::sqrt(192.0);
  // [/deepseek]
  report("yarn 40, DeepSeek V3", deepseek);
  expect(deepseek.magnitude() == 1 && near(scale * std::sqrt(192.0), 1.8738542070926265, 1e-9), "DeepSeek's factors");

  // [longrope]
  // Phi-3: one list of divisors up to 4096 tokens, another beyond; the magnitude holds in both.
  std::vector<double> short_list(64, 1.0);
  std::vector<double> long_list(64, 32.0);
  posenc::longrope phi{.short_factor = short_list,
                       .long_factor = long_list,
                       .original_max_position_embeddings = 4096,
                       .max_position_embeddings = 131072,
                       .length = 4096};
  const posenc::rope<float> up_to_4096{{.head_dim = 128, .scaling = phi}};
  phi.length = 4097;  // or the capacity of the cache, to choose once
  const posenc::rope<float> beyond{{.head_dim = 128, .scaling = phi}};
  // [/longrope]
  report("longrope at 4096", up_to_4096);
  report("longrope at 4097", beyond);
  expect(near(beyond.magnitude(), 1.1902380714238083, 1e-12) && up_to_4096.magnitude() == beyond.magnitude(),
         "magnitude of longrope");

  // [llama3]
  // Llama 3.1: by wavelength.
  const posenc::rope<float> llama{
      {.head_dim = 128,
       .base = 5e5,
       .scaling = posenc::llama3{
           .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192}}};
  // [/llama3]
  report("llama3 8, base 5e5", llama);
  expect(llama.inv_freq()[0] == 1 && llama.magnitude() == 1, "llama3 keeps fast pairs");

  std::puts("");
  grow_a_cache();
  shift_a_cache();
  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
