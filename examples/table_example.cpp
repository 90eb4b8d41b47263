// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Tables: a learned one for a larger image, rows that follow a recursion, rows of distances, position from a border;
// and which layers see them.
#include <posenc/attention/compose.hpp>
#include <posenc/attention/layer_schedule.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/position_convolution.hpp>
#include <posenc/encoders/recursive.hpp>
#include <posenc/encoders/relative_sinusoids.hpp>
#include <posenc/encoders/resize.hpp>
#include <posenc/encoders/rope.hpp>

#include <cmath>
#include <cstdio>
#include <type_traits>
#include <vector>

namespace {

bool resized() {
  constexpr std::int64_t dim = 4;
  std::vector<float> table((1 + 14 * 14) * dim);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i / dim);
  // [resize]
  // A vision transformer's table, a class token and 14 x 14 patches, for images of 16 x 16 patches.
  const posenc::table_resize resize({.from = {14, 14}, .to = posenc::table_extent{16, 16}, .prefix_rows = 1});
  const posenc::learned<float> encoder({.rows = resize.rows_after(), .dim = dim}, resize(table));
  // [/resize]
  bool good = encoder.rows() == 257 && encoder.table()[0] == 0;
  // The old grid holds 1 .. 196 in order; opposite cells around the centre add up to twice the middle.
  const auto row = [&](std::size_t y, std::size_t x) { return encoder.table()[(1 + y * 16 + x) * dim]; };
  good = good && std::abs(row(7, 7) + row(8, 8) - 197) < 1e-3f && std::abs(row(3, 5) + row(12, 10) - 197) < 1e-3f;

  // [adjoint]
  // While training at the new size: the gradient of the new table becomes that of the old one.
  const std::vector<float> upstream(encoder.table().size(), 1.0f);
  const std::vector<float> gradient = resize.adjoint(upstream);
  // [/adjoint]
  double sum = 0;
  for (const float g : gradient) sum += static_cast<double>(g);
  return good && gradient.size() == table.size() && std::abs(sum - 257 * dim) < 1e-3;
}

bool recursion() {
  // [recursive]
  // dp/dt = f(t, p), four Runge-Kutta steps from one token to the next.
  const auto flow = [](double, std::span<const double> p, std::span<double> out) {
    out[0] = p[1];
    out[1] = -p[0];
  };
  const posenc::runge_kutta step(flow, {.dt = 0.1, .substeps = 4});
  const posenc::recursive<double> encoder(64, {0.0, 1.0}, step);  // positions 0 .. 63
  // [/recursive]
  const bool good = std::abs(encoder.table()[2 * 63] - std::sin(6.3)) < 1e-6;
  std::vector<float> x(4, 0.0f);
  // [cursor]
  // Decoding: no table, one row, one token on.
  posenc::recursive_cursor cursor(std::vector<double>{0.0, 1.0}, step);
  cursor.advance_to(5);
  cursor.embed(posenc::view{x.data(), {.tokens = 2, .dim = 2}});  // the tokens at 5 and 6
  // [/cursor]
  return good && cursor.position() == 7 && x[2] == static_cast<float>(encoder.table()[2 * 6]);
}

bool convolution() {
  // [convolution]
  // CPVT's PEG: a depthwise 3x3 kernel over 4 x 5 tokens, the class token left alone. Here all ones, without residual.
  const posenc::position_convolution<float> encoder({.channels = 1, .residual = false, .prefix_rows = 1},
                                                    std::vector<float>(9, 1.0f));
  std::vector<float> tokens(1 + 4 * 5, 1.0f);
  encoder.embed(posenc::view{tokens.data(), {.tokens = 21, .dim = 1}}, {.rows = 4, .columns = 5});
  // [/convolution]
  return tokens[0] == 1 && tokens[1] == 4 && tokens[2] == 6 && tokens[7] == 9;
}

bool distances() {
  // [distances]
  // A table for Shaw's relative keys, distances -16 .. 16: row of key - query = r is [16 + r].
  const posenc::sinusoidal<float> rows{{.dim = 8, .layout = posenc::sinusoidal_layout::concat_sin_cos}};
  const std::vector<float> table = posenc::relative_sinusoids(rows, 16, 16);
  // [/distances]
  return table.size() == 33 * 8 && table[(16 - 3) * 8] == static_cast<float>(std::sin(-3.0));
}

bool schedules() {
  using namespace posenc;
  constexpr std::int64_t layers = 12;
  const rope<float> near({.head_dim = 8});
  const rope<float> far({.head_dim = 8, .base = 1e6});
  // [schedule]
  // Gemma 3: five layers of a window and a short base, then one of everything and a long base.
  const layer_schedule model(layer_pattern::every(6, layers), compose(near, sliding_window(1024)),
                             compose(far, causal{}));
  // [/schedule]
  // [input]
  // One sinusoidal encoder whose rows are added before every layer; `stem` would add them before the first alone.
  const auto input = input_schedule<sinusoidal<float>>::shared(sinusoidal<float>{{.dim = 16}}, layers);
  // [/input]
  std::int64_t windows = 0;
  std::vector<float> x(16, 0.0f);
  for (std::int64_t l = 0; l < layers; ++l) {
    // [layer]
    input.embed(l, view{x.data(), {.tokens = 1, .dim = 16}});
    model.rotate(l, view{x.data(), {.tokens = 1, .heads = 2, .dim = 8}});
    // [/layer]
    // f is called with the policy of the layer, whose type differs between the kinds.
    windows += model.visit_layer(l, []<class Policy>(const Policy&) {
      return std::is_same_v<Policy, policy<rope<float>, sliding_window>> ? 1 : 0;
    });
  }
  // Position 0 turns nothing and adds 0 to sines and 1 to cosines.
  return windows == 10 && x[0] == 0 && x[1] == static_cast<float>(layers);
}

}  // namespace

int main() {
  const struct {
    const char* what;
    bool good;
  } parts[] = {{"resize", resized()},
               {"recursive", recursion()},
               {"position_convolution", convolution()},
               {"relative_sinusoids", distances()},
               {"layer_schedule", schedules()}};
  bool good = true;
  for (const auto& part : parts) {
    std::printf("%-20s %s\n", part.what, part.good ? "ok" : "wrong");
    good = good && part.good;
  }
  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
