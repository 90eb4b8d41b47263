// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/compose.hpp>
#include <posenc/attention/tile_reader.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <vector>

namespace {

using namespace posenc_test;
using Arch = posenc::simd::default_arch;
constexpr std::int64_t panel = posenc::kernels::panel_width<float, Arch>;

template <class S, class Pack>
struct fixture {
  stored<S> k, v;
  posenc::call c;
  Pack pack;
  std::vector<float> keys, values, line;
  posenc::view<const S> vk, vv;

  explicit fixture(Pack p) : k({1, 40, 2, 6}), v({1, 40, 2, 5}), pack(p), keys(64 * 6), values(64 * 32), line(8) {
    std::mt19937 random(3);
    k = random_stored<S>(random, {1, 40, 2, 6});
    v = random_stored<S>(random, {1, 40, 2, 5});
    c = {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 1, .keys = 40, .dim = 6, .value_dim = 5};
    vk = k.read();
    vv = v.read();
  }
  auto reader(posenc::key_state state) {
    return posenc::detail::tile_reader<Arch, float, const S, const S, Pack>{
        vk, vv, c, pack, state, keys.data(), values.data(), line.data()};
  }
};

}  // namespace

TEST_CASE("keys are read in place where they can be, else widened, and rotated where the cache holds raw keys") {
  const auto none = std::tuple<>{};
  fixture<float, std::tuple<>> in_place(none);
  CHECK(in_place.reader(posenc::key_state::rotated).key(0, 1, 7) == in_place.vk.row(0, 7, 1));
  fixture<Eigen::half, std::tuple<>> half(none);
  const auto read_half = half.reader(posenc::key_state::rotated);
  const float* wide = read_half.key(0, 1, 7);
  CHECK(wide == half.line.data());
  for (std::int64_t d = 0; d < 6; ++d) CHECK(wide[d] == static_cast<float>(half.k(0, 7, 1, d)));
  using rope = posenc::rope<float>;
  const std::tuple<rope> rotating{rope({.head_dim = 6})};
  fixture<float, std::tuple<rope>> raw(rotating);
  const float* turned = raw.reader(posenc::key_state::unrotated).key(0, 1, 7);
  std::vector<float> expected(raw.vk.row(0, 7, 1), raw.vk.row(0, 7, 1) + 6);
  std::get<0>(rotating).transform_k(expected.data(), 6, posenc::position(7), 1);
  for (std::size_t d = 0; d < 6; ++d) CHECK(turned[d] == expected[d]);
}

TEST_CASE("a packed tile holds every key and value once, zeros beside them, and tells of values that are not finite") {
  fixture<float, std::tuple<>> f(std::tuple<>{});
  const auto read = f.reader(posenc::key_state::rotated);
  CHECK(read.pack_tile(0, 1, {3, 3 + panel + 2}));
  for (std::int64_t j = 0; j < panel + 2; ++j) {
    for (std::int64_t d = 0; d < 6; ++d)
      REQUIRE(f.keys[static_cast<std::size_t>(j / panel * panel * 6 + d * panel + j % panel)] == f.k(0, 3 + j, 1, d));
    for (std::int64_t d = 0; d < 5; ++d)
      REQUIRE(f.values[static_cast<std::size_t>(j * panel + d)] == f.v(0, 3 + j, 1, d));
  }
  CHECK(f.keys[static_cast<std::size_t>(panel * 6 + 2)] == 0);  // past the last key of the tile
  f.v(0, 5, 1, 2) = inf_f;
  CHECK_FALSE(read.pack_tile(0, 1, {3, 9}));
  CHECK(read.pack_tile(0, 0, {3, 9}));
}
