// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: implicit position through zero padding. Golden arrays are channel first.
#include "golden.hpp"

#include <posenc/encoders/position_convolution.hpp>

namespace {

using golden::answers;
using golden::test_case;

void convolution(const test_case& c, answers& a) {
  const golden::tensor& x = c.input("x");
  const golden::tensor& w = c.input("weight");
  const bool image = x.shape.size() == 3;
  const std::int64_t channels = x.extent(0);
  const std::int64_t padding = c.integer("padding");
  const posenc::table_extent grid{.rows = image ? x.extent(1) : 1, .columns = x.shape.back()};
  posenc::position_convolution_options o{.channels = channels};
  o.kernel = {.rows = image ? w.extent(1) : 1, .columns = w.shape.back()};
  o.padding = {image ? padding : 0, padding};
  o.activation = c.choice<posenc::convolution_activation>(
      "activation",
      {{"identity", posenc::convolution_activation::identity}, {"gelu", posenc::convolution_activation::gelu}});
  o.residual = c.params().at("residual").get<bool>();
  if (c.integer("drop_last") != 2 * padding - w.shape.back() + 1)
    throw golden::unsupported("drop_last of another size");

  const posenc::shape shape{.tokens = grid.rows * grid.columns, .dim = channels};
  // A view of [channel][cell] as [token, dim].
  const posenc::strides channel_first{.token = 1, .dim = shape.tokens};
  std::vector<double> data = x.values;
  const posenc::position_convolution<double> encoder(o, w.values, c.input("bias").values);
  encoder.embed(posenc::view(data.data(), shape, channel_first), grid);
  a.add("out", data, "in place, depthwise");

  // The same as one group whose weights are zero between channels.
  posenc::position_convolution_options dense = o;
  dense.groups = 1;
  const std::int64_t taps = o.kernel.rows * o.kernel.columns;
  std::vector<double> weight(static_cast<std::size_t>(channels * channels * taps), 0.0);
  for (std::int64_t ch = 0; ch < channels; ++ch)
    for (std::int64_t k = 0; k < taps; ++k)
      weight[static_cast<std::size_t>((ch * channels + ch) * taps + k)] =
          w.values[static_cast<std::size_t>(ch * taps + k)];
  std::vector<double> out(data.size(), -7.0);
  posenc::position_convolution<double>(dense, weight, c.input("bias").values)
      .apply(posenc::view(x.values.data(), shape, channel_first), posenc::view(out.data(), shape, channel_first), grid);
  a.add("out", out, "one group");
}

const golden::registration ops{{"absolute.conv", convolution}};

}  // namespace
