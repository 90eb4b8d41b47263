// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Absolute encodings other than the sinusoid and the learned table: timesteps, grids, Fourier features, segments,
// axial, tiled and hierarchical tables, complex order, learned scale. Each is checked against a value known by hand.
#include <posenc/encoders/axial.hpp>
#include <posenc/encoders/complex_order.hpp>
#include <posenc/encoders/fourier_features.hpp>
#include <posenc/encoders/grid_detr.hpp>
#include <posenc/encoders/grid_sinusoidal.hpp>
#include <posenc/encoders/hierarchical.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/scaled_sinusoidal.hpp>
#include <posenc/encoders/segment.hpp>
#include <posenc/encoders/tiled.hpp>
#include <posenc/encoders/timestep.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>
#include <vector>

namespace {

bool near(float a, double b) { return std::abs(static_cast<double>(a) - b) < 1e-6; }

bool timesteps() {
  // [timestep]
  // Stable Diffusion: cosines first, no shift. Timesteps of a schedule may be real.
  const posenc::timestep<float> encoder{{.dim = 320, .flip_sin_to_cos = true, .downscale_freq_shift = 0}};
  const double schedule[] = {999.0, 749.25, 0.0};
  const std::vector<float> rows = encoder.table(schedule);
  // [/timestep]
  // [gaussian]
  // NCSN++: the frequencies are a checkpoint's.
  const double weights[] = {0.25, 16.0, -3.5};
  const auto noise = posenc::timestep<float>::gaussian_fourier(weights);
  const std::vector<float> features = noise.table(std::vector<double>{1.0});
  // [/gaussian]
  return near(rows[0], std::cos(999.0)) && near(rows[320 + 160], std::sin(749.25)) && rows[640] == 1 &&
         features[0] == 1 && features[3] == 0;
}

bool grids() {
  std::vector<float> patches(197 * 768, 0.0f);
  // [grid_sinusoidal]
  // MAE: 14 x 14 patches after one class token, which gets no position. x comes before y.
  const posenc::grid_sinusoidal<float> encoder{posenc::grid_sinusoidal_options::mae(768, 1)};
  const std::vector<std::int64_t> grid = {14, 14};
  encoder.embed(posenc::view(patches.data(), {.tokens = 197, .dim = 768}), grid);
  // [/grid_sinusoidal]
  const float* cell = patches.data() + (1 + 3 * 14 + 5) * 768;  // y = 3, x = 5
  bool good = patches[0] == 0 && near(cell[0], std::sin(5.0)) && near(cell[384], std::sin(3.0));

  // [named_blocks]
  // Any other order is written down: time first, then height and width, at half the frame rate.
  const posenc::grid_sinusoidal<float> video{{.dim = 64,
                                              .blocks = {{.axis = 0, .channels = 16},   // t
                                                         {.axis = 1, .channels = 24},   // y
                                                         {.axis = 2, .channels = 24}},  // x
                                              .coordinate_scale = {0.5, 1, 1}}};
  const std::vector<float> table = video.table(std::vector<std::int64_t>{4, 2, 2});
  // [/named_blocks]
  good = good && table.size() == 16 * 64 && near(table[12 * 64], std::sin(1.5));

  std::vector<float> image(6 * 8);
  // [grid_detr]
  // DETR: 2 x 3 cells, the last column is padding; y before x, counted from 1.
  const std::vector<int> valid = {1, 1, 0,  //
                                  1, 1, 0};
  const posenc::grid_detr detr{{.num_pos_feats = 4, .normalize = true}};
  detr.table(posenc::view(image.data(), {.tokens = 6, .dim = 8}), valid, 2, 3);
  // [/grid_detr]
  const double first = 1 / (2 + 1e-6) * 2 * std::numbers::pi;
  good = good && near(image[0], std::sin(first)) && near(image[4], std::sin(first)) && near(image[2 * 8], 0);
  return good;
}

bool fourier() {
  std::vector<float> points(2 * 26);
  // [fourier_features]
  // Perceiver: six bands up to half the resolution, coordinates in -1..1, listed axis by axis.
  const posenc::fourier_features encoder{{.num_bands = 6, .max_resolution = {224, 224}}};
  const std::vector<double> at = {-1.0, 0.5,   // y of both points
                                  0.25, 1.0};  // x of both points
  encoder.table(posenc::view(points.data(), {.tokens = 2, .dim = encoder.dim()}), posenc::real_positions::axes(at, 2));
  // [/fourier_features]
  bool good = points[26] == 0.5f && points[28] == 1;  // sin(pi / 2)

  // [nerf]
  const auto nerf = posenc::fourier_features::nerf({.axes = 3, .num_freqs = 10});
  // [/nerf]
  good = good && nerf.dim() == 63;
  return good;
}

bool tables() {
  constexpr std::int64_t dim = 4;
  std::vector<float> x(3 * dim, 0.0f);
  const posenc::view embeddings{x.data(), {.tokens = 3, .dim = dim}};
  const std::vector<float> segment_table = {1, 1, 1, 1, 2, 2, 2, 2};
  std::vector<float> position_table(8 * dim);
  for (std::size_t i = 0; i < position_table.size(); ++i) position_table[i] = static_cast<float>(10 * (i / dim));
  // [segment]
  // BERT's sum before its layer norm: words are in x, segments and positions are added.
  const posenc::segment<float> segments{{.segments = 2, .dim = dim}, std::span(segment_table)};
  const posenc::learned<float> learned{{.rows = 8, .dim = dim}, std::span<const float>(position_table)};
  segments.embed(embeddings, std::vector<int>{0, 0, 1});
  learned.embed(embeddings);
  // [/segment]
  bool good = embeddings(0, 0, 0, 0) == 1 && embeddings(0, 2, 0, 3) == 22;

  const std::vector<float> rows = {0, 1, 2};
  const std::vector<float> columns = {5, 6, 7, 8};
  std::vector<float> pair(2);
  // [axial]
  // Reformer: 3 + 4 rows serve 12 positions; position y * 4 + x takes [rows[y] | columns[x]].
  const posenc::axial<float> axial{{{.rows = 3, .dim = 1, .table = rows}, {.rows = 4, .dim = 1, .table = columns}}};
  axial.lookup(posenc::view(pair.data(), {.tokens = 1, .dim = 2}), posenc::positions::from(6));
  // [/axial]
  good = good && pair == std::vector<float>{1, 7};

  // [tiled]
  // Longformer: rows 2..513 of RoBERTa's table repeated up to 4098 rows, without a copy.
  const posenc::tiled<float> tiled{{.rows = 514, .dim = 1, .length = 4098, .leading = 2}, std::vector<float>(514)};
  // [/tiled]
  good = good && tiled.row_of(514) == 2 && tiled.row_of(4097) == 513;

  std::vector<float> beyond(2 * dim);
  // [hierarchical]
  // 8 trained rows give 64 positions; the first 8 stay what they are, position 64 throws.
  const posenc::hierarchical<float> longer{{.rows = 8, .dim = dim, .alpha = 0.4},
                                           std::span<const float>(position_table)};
  longer.lookup(posenc::view(beyond.data(), {.tokens = 2, .dim = dim}), posenc::positions::from(7));
  // [/hierarchical]
  good = good && beyond[0] == 70 && near(beyond[dim], 0.4 / 0.6 * 10);
  try {
    longer.lookup(posenc::view(beyond.data(), {.tokens = 2, .dim = dim}), posenc::positions::from(63));
    good = false;
  } catch (const std::out_of_range& error) {
    std::puts(error.what());
  }
  return good;
}

bool complex_orders() {
  const std::vector<float> r = {1.0f, 2.0f, 0.5f, 1.5f};
  const std::vector<float> omega = {0.5f, 0.125f};
  std::vector<float> z(2 * 4);
  // [complex_order]
  // Two words of two complex channels, frequencies shared, no initial phases; a row is [re | im], so the score
  // Re(q . conj(k)) is the dot product of two rows.
  const posenc::complex_order<float> encoder{{.vocabulary = 2, .dim = 2}, {.r = r, .omega = omega}};
  const posenc::shape shape{.tokens = 2, .dim = 2};
  encoder.lookup(posenc::view(z.data(), shape, {.token = 4}), posenc::view(z.data() + 2, shape, {.token = 4}),
                 std::vector<int>{0, 1}, posenc::positions::from(1));
  // [/complex_order]
  const float score = z[0] * z[4] + z[1] * z[5] + z[2] * z[6] + z[3] * z[7];
  return near(z[0], std::cos(0.5)) && near(score, 0.5 * std::cos(0.5) + 3 * std::cos(0.125));
}

bool learned_scale() {
  std::vector<float> x(512, 0.0f);
  // [scaled_sinusoidal]
  // x-transformers: a scale that starts at dim^(-1/2) and is trained.
  posenc::scaled_sinusoidal<float> encoder{{.dim = 512, .layout = posenc::sinusoidal_layout::concat_sin_cos}};
  encoder.scale() *= 2;  // a training step
  encoder.embed(posenc::view(x.data(), {.tokens = 1, .dim = 512}), posenc::positions::from(3));
  // [/scaled_sinusoidal]
  return near(x[0], 2 / std::sqrt(512.0) * std::sin(3.0));
}

bool check(const char* name, bool good) {
  std::printf("%-18s %s\n", name, good ? "ok" : "wrong");
  return good;
}

}  // namespace

int main() {
  bool good = check("timestep", timesteps());
  good = check("grids", grids()) && good;
  good = check("fourier_features", fourier()) && good;
  good = check("tables", tables()) && good;
  good = check("complex_order", complex_orders()) && good;
  good = check("scaled_sinusoidal", learned_scale()) && good;
  return good ? 0 : 1;
}
