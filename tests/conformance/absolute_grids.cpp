// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: designed rows (timesteps, grids, Fourier features).
#include "golden.hpp"

#include <posenc/encoders/fourier_features.hpp>
#include <posenc/encoders/grid_detr.hpp>
#include <posenc/encoders/grid_sinusoidal.hpp>
#include <posenc/encoders/timestep.hpp>

#include <algorithm>

namespace {

using golden::answers;
using golden::test_case;

/// Numbers of a parameter that is an array.
std::vector<double> numbers(const test_case& c, const std::string& key) {
  return c.params().at(key).at("data").get<std::vector<double>>();
}

/// The rows as written, and as added to zeros; every element must be written.
template <class Write, class Add>
void both_ways(answers& a, const std::string& output, const posenc::shape& shape, const std::string& how,
               const Write& write, const Add& add) {
  std::vector<double> rows(static_cast<std::size_t>(shape.elements()), -7.0);
  write(posenc::view(rows.data(), shape));
  a.add(output, rows, how);
  std::vector<double> sum(rows.size(), 0.0);
  add(posenc::view(sum.data(), shape));
  a.add(output, sum, how + ", embed");
}

void timestep_table(const test_case& c, answers& a) {
  const posenc::timestep<double> encoder({.dim = c.integer("embedding_dim"),
                                          .flip_sin_to_cos = c.params().at("flip_sin_to_cos").get<bool>(),
                                          .downscale_freq_shift = c.number("downscale_freq_shift"),
                                          .scale = c.number("scale"),
                                          .max_period = c.number("max_period")});
  const auto& at = c.input("timesteps");
  both_ways(
      a, "table", {.tokens = at.extent(0), .dim = encoder.dim()}, "real timesteps",
      [&](auto x) { encoder.table(x, posenc::real_positions(at.values)); },
      [&](auto x) { encoder.embed(x, posenc::real_positions(at.values)); });
  a.add("table", encoder.table(at.values), "a table of its own");
  // Integers among real timesteps through the integer path.
  std::vector<double> rows = encoder.table(at.values);
  for (std::int64_t t = 0; t < at.extent(0); ++t) {
    const double value = at.values[static_cast<std::size_t>(t)];
    if (value != std::floor(value)) continue;
    encoder.table(posenc::view(rows.data() + t * encoder.dim(), {.tokens = 1, .dim = encoder.dim()}),
                  posenc::positions::from(static_cast<std::int64_t>(value)));
  }
  a.add("table", rows, "integer timesteps");
}

posenc::grid_sinusoidal_options grid_options(const test_case& c) {
  posenc::grid_sinusoidal_options o{.dim = c.integer("dim"), .base = c.number("base")};
  o.layout = c.choice<posenc::sinusoidal_layout>(
      "layout", {{"interleaved_sin_cos", posenc::sinusoidal_layout::interleaved_sin_cos},
                 {"interleaved_cos_sin", posenc::sinusoidal_layout::interleaved_cos_sin},
                 {"concat_sin_cos", posenc::sinusoidal_layout::concat_sin_cos},
                 {"concat_cos_sin", posenc::sinusoidal_layout::concat_cos_sin}});
  o.denominator = c.choice<posenc::sinusoidal_denominator>(
      "denominator",
      {{"half", posenc::sinusoidal_denominator::half}, {"half_minus_1", posenc::sinusoidal_denominator::half_minus_1}});
  const auto axis = numbers(c, "block_axis");
  const auto channels = numbers(c, "block_channels");
  for (std::size_t i = 0; i < axis.size(); ++i)
    o.blocks.push_back({static_cast<int>(axis[i]), static_cast<std::int64_t>(channels[i])});
  o.prefix_rows = c.integer("prefix_rows");
  o.coordinate_scale = numbers(c, "coordinate_scale");
  return o;
}

/// The maker that a case is named after.
posenc::grid_sinusoidal_options named_options(const test_case& c, const std::vector<std::int64_t>& extents) {
  const std::int64_t dim = c.integer("dim");
  const auto starts = [&](const char* words) { return c.name().rfind(words, 0) == 0; };
  if (starts("mae/")) return posenc::grid_sinusoidal_options::mae(dim, c.integer("prefix_rows"));
  if (starts("diffusers/") && extents.size() == 3) return posenc::grid_sinusoidal_options::diffusers_3d(dim);
  // The 2-D case is named base4/interpolation2.
  if (starts("diffusers/")) return posenc::grid_sinusoidal_options::diffusers_2d(dim, extents[0], extents[1], 4, 2.0);
  if (starts("mdpe")) return posenc::grid_sinusoidal_options::multidim(dim, static_cast<int>(extents.size()));
  throw golden::unsupported("maker for " + c.name());
}

/// Coordinates of the cells, ids[axis * cells + cell].
std::vector<std::int64_t> cells(const std::vector<std::int64_t>& extents) {
  std::int64_t n = 1;
  for (const std::int64_t e : extents) n *= e;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n) * extents.size());
  for (std::int64_t cell = 0; cell < n; ++cell)
    for (std::size_t axis = extents.size(), rest = static_cast<std::size_t>(cell); axis-- > 0;) {
      const auto extent = static_cast<std::size_t>(extents[axis]);
      ids[axis * static_cast<std::size_t>(n) + static_cast<std::size_t>(cell)] =
          static_cast<std::int64_t>(rest % extent);
      rest /= extent;
    }
  return ids;
}

void grid_sincos(const test_case& c, answers& a) {
  const auto extents = c.input("shape").integers();
  const auto ids = cells(extents);
  const int axes = static_cast<int>(extents.size());
  const std::int64_t n = static_cast<std::int64_t>(ids.size()) / axes;
  for (const bool named : {false, true}) {
    const posenc::grid_sinusoidal<double> encoder(named ? named_options(c, extents) : grid_options(c));
    const std::string how = named ? "by name" : "by blocks";
    const std::int64_t prefix = encoder.options().prefix_rows;
    const posenc::shape shape{.tokens = prefix + n, .dim = encoder.dim()};
    both_ways(
        a, "table", shape, how, [&](auto x) { encoder.table(x, std::span(extents)); },
        [&](auto x) { encoder.embed(x, std::span(extents)); });
    a.add("table", encoder.table(std::span(extents)), how + ", a table of its own");
    const auto tail = [&](auto x) {
      return posenc::view(x.data() + prefix * encoder.dim(), {.tokens = n, .dim = encoder.dim()});
    };
    both_ways(
        a, "table", shape, how + ", listed",
        [&](auto x) {
          std::fill_n(x.data(), prefix * encoder.dim(), 0.0);
          encoder.table(tail(x), posenc::positions::axes(ids, axes));
        },
        [&](auto x) { encoder.embed(tail(x), posenc::positions::axes(ids, axes)); });
  }
}

void grid_detr(const test_case& c, answers& a) {
  const posenc::grid_detr encoder({.num_pos_feats = c.integer("num_pos_feats"),
                                   .temperature = c.number("temperature"),
                                   .normalize = c.params().at("normalize").get<bool>(),
                                   .scale = c.number("scale"),
                                   .eps = c.number("eps")});
  const auto& mask = c.input("valid_mask");
  const auto valid = mask.integers();
  const std::int64_t rows = mask.extent(0);
  const std::int64_t columns = mask.extent(1);
  const posenc::shape shape{.tokens = rows * columns, .dim = encoder.dim()};
  // Channel-first, as the model has it.
  const posenc::strides first{.token = 1, .dim = rows * columns};
  both_ways(
      a, "encoding", shape, "channel-first",
      [&](auto x) { encoder.table(posenc::view(x.data(), shape, first), valid, rows, columns); },
      [&](auto x) { encoder.embed(posenc::view(x.data(), shape, first), valid, rows, columns); });
}

void grid_fourier(const test_case& c, answers& a) {
  const posenc::fourier_features encoder({.num_bands = c.integer("num_bands"),
                                          .max_resolution = numbers(c, "max_resolution"),
                                          .concat_pos = c.params().at("concat_pos").get<bool>(),
                                          .sine_only = c.params().at("sine_only").get<bool>()});
  const auto& at = c.input("coordinates");
  const std::int64_t n = at.extent(0);
  const std::int64_t axes = at.extent(1);
  std::vector<double> by_axis(at.values.size());
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t x = 0; x < axes; ++x)
      by_axis[static_cast<std::size_t>(x * n + t)] = at.values[static_cast<std::size_t>(t * axes + x)];
  const auto coordinates = posenc::real_positions::axes(by_axis, static_cast<int>(axes));
  both_ways(
      a, "features", {.tokens = n, .dim = encoder.dim()}, "rows", [&](auto x) { encoder.table(x, coordinates); },
      [&](auto x) { encoder.embed(x, coordinates); });
}

const golden::registration ops{{"timestep.table", timestep_table},
                               {"grid.sincos", grid_sincos},
                               {"grid.detr", grid_detr},
                               {"grid.fourier", grid_fourier}};

}  // namespace
