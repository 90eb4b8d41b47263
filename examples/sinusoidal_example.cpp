// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Sinusoidal encoding: added to embeddings, in the layout of the model, at integer or real positions.
#include <posenc/encoders/sinusoidal.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  bool good = true;

  std::vector<float> embeddings(10 * 512, 0.0f);
  // [embed]
  // Ten tokens of 512 channels, 20 tokens already processed; Whisper's layout and denominator.
  const posenc::sinusoidal<float> encoder{{.dim = 512,
                                           .layout = posenc::sinusoidal_layout::concat_sin_cos,
                                           .denominator = posenc::sinusoidal_denominator::half_minus_1}};
  encoder.embed(posenc::view(embeddings.data(), {.tokens = 10, .dim = 512}), posenc::positions::from(20));
  // [/embed]
  good = good && embeddings[0] == static_cast<float>(std::sin(20.0));
  good = good && embeddings[256] == static_cast<float>(std::cos(20.0));
  good = good && std::abs(embeddings[255] - static_cast<float>(std::sin(20.0 / 10000))) < 1e-9f;

  // [rows]
  // The rows themselves, here in the paper's layout; the scalar product of two depends on their distance.
  const posenc::sinusoidal<double> paper{{.dim = 512}};
  std::vector<double> rows(101 * 512);
  paper.table(posenc::view(rows.data(), {.tokens = 101, .dim = 512}));
  // [/rows]
  const auto product = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t d = 0; d < 512; ++d) sum += rows[a * 512 + d] * rows[b * 512 + d];
    return sum;
  };
  std::printf("PE(0).PE(k) for k = 0, 1, 10, 100: %.4f %.4f %.4f %.4f\n", product(0, 0), product(0, 1), product(0, 10),
              product(0, 100));
  good = good && std::abs(product(0, 0) - 256) < 1e-9 && std::abs(product(0, 1) - 249.1021) < 1e-4;
  good = good && std::abs(product(0, 10) - 173.7897) < 1e-4 && std::abs(product(0, 100) - 111.9502) < 1e-4;
  good = good && std::abs(product(37, 47) - product(0, 10)) < 1e-9;

  // [real]
  // Diffusion times and sensor clocks are real numbers.
  const double times[] = {0.0, 0.5, 999.25};
  std::vector<float> embedded(3 * 512);
  encoder.table(posenc::view(embedded.data(), {.tokens = 3, .dim = 512}), posenc::real_positions(times));
  // [/real]
  good = good && embedded[512] == static_cast<float>(std::sin(0.5));
  good = good && embedded[2 * 512] == static_cast<float>(std::sin(999.25));

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
