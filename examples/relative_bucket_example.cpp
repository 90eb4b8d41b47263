// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// T5's bucketed relative bias, and the general line of biases under it.
#include <posenc/attention/bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/toeplitz.hpp>

#include <cstdio>
#include <vector>

int main() {
  bool good = true;
  constexpr std::int64_t heads = 2;
  // Bucket b of head h holds b + 100 h, so that a bias names its bucket.
  std::vector<float> table(32 * heads);
  for (std::size_t b = 0; b < 32; ++b)
    for (std::size_t h = 0; h < heads; ++h) table[b * heads + h] = static_cast<float>(b + 100 * h);

  // [bucket]
  // The encoder of T5: 32 buckets, both directions, the table as Hugging Face stores it.
  const posenc::relative_bucket<float> encoder{
      {.heads = heads, .num_buckets = 32, .max_distance = 128, .layout = posenc::table_layout::bucket_head},
      std::span<const float>(table)};
  // [/bucket]
  // Distances 0..7 have a bucket each, 8..11 share one, and everything from 91 on shares the last.
  for (const std::int64_t d : {0, 1, 7, 8, 11, 12, 90, 91, 128, 100000})
    std::printf("distance %6lld: bucket %2lld before the query, %2lld after it\n", static_cast<long long>(d),
                static_cast<long long>(encoder.bucket(-d)), static_cast<long long>(encoder.bucket(d)));
  good = good && encoder.bucket(-7) == 7 && encoder.bucket(-8) == 8 && encoder.bucket(-11) == 8;
  good = good && encoder.bucket(-12) == 9 && encoder.bucket(-91) == 15 && encoder.bucket(-90) == 14;
  good = good && encoder.bucket(7) == 23 && encoder.bucket(91) == 31 && encoder.bucket(100000) == 31;

  // [line]
  // The bias of head 1 at key - query = -3 .. 3.
  std::vector<float> line(7);
  posenc::distance_line(encoder, 1, -3, std::span<float>(line));
  // [/line]
  good = good && line == std::vector<float>{103, 102, 101, 100, 117, 118, 119};

  // [toeplitz]
  // Any other function of the distance, up to 4 each way and constant beyond.
  const posenc::toeplitz<float> own{heads, 4, [](std::int64_t head, std::int64_t distance) {
                                      return static_cast<float>(head == 0 ? distance : -distance);
                                    }};
  // [/toeplitz]
  std::vector<float> far(3);
  posenc::distance_line(own, 0, 3, std::span<float>(far));
  good = good && far == std::vector<float>{3, 4, 4};

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
