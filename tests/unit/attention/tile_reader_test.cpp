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
  static constexpr std::int64_t line_step = 8;

  explicit fixture(Pack p)
      : k({1, 40, 2, 6}), v({1, 40, 2, 5}), pack(p), keys(64 * 6), values(64 * 32), line(std::size_t{32} * line_step) {
    std::mt19937 random(3);
    k = random_stored<S>(random, {1, 40, 2, 6});
    v = random_stored<S>(random, {1, 40, 2, 5});
    c = {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 1, .keys = 40, .dim = 6, .value_dim = 5};
    vk = k.read();
    vv = v.read();
  }
  auto reader(posenc::key_state state) {
    using view = posenc::view<const S>;
    return posenc::detail::tile_reader<Arch, float, view, view, Pack>{
        vk, vv, c, pack, state, keys.data(), values.data(), line.data(), line_step};
  }
};

}  // namespace

TEST_CASE("keys are read in place where they can be, else widened, and rotated where the cache holds raw keys") {
  const auto none = std::tuple<>{};
  // All runs of keys 3 .. 38 of head 1: every key once, in order.
  const auto read_all = [](auto& f, posenc::key_state state, const auto& check) {
    std::int64_t next = 3;
    f.reader(state).for_key_runs(0, 1, 3, 39, [&](std::int64_t first, const auto& run) {
      CHECK(first == next);
      next += run.n;
      for (std::int64_t i = 0; i < run.n; ++i) check(first + i, run.first + i * run.step);
    });
    CHECK(next == 39);
  };
  fixture<float, std::tuple<>> in_place(none);
  read_all(in_place, posenc::key_state::rotated,
           [&](std::int64_t j, const float* key) { CHECK(key == in_place.vk.row(0, j, 1)); });
  fixture<Eigen::half, std::tuple<>> half(none);
  read_all(half, posenc::key_state::rotated, [&](std::int64_t j, const auto* key) {
    CHECK(static_cast<const void*>(key) == static_cast<const void*>(half.vk.row(0, j, 1)));
  });
  using rope = posenc::rope<float>;
  const std::tuple<rope> rotating{rope({.head_dim = 6})};
  fixture<float, std::tuple<rope>> raw(rotating);
  const auto turned = [&](std::int64_t j, const float* key) {
    std::vector<float> expected(raw.vk.row(0, j, 1), raw.vk.row(0, j, 1) + 6);
    std::get<0>(rotating).transform_k(expected.data(), 6, posenc::position(j), 1);
    for (std::size_t d = 0; d < 6; ++d) CHECK(key[d] == expected[d]);
  };
  const auto reader = raw.reader(posenc::key_state::unrotated);
  std::int64_t next = 3;
  reader.for_key_runs(0, 1, 3, 39, [&](std::int64_t first, const auto& run) {
    CHECK(first == next);
    next += run.n;
    // In place the rows are of the storage, widened ones of the compute type; here both are float.
    CHECK((run.first >= raw.line.data() && run.first < raw.line.data() + raw.line.size()));
    for (std::int64_t i = 0; i < run.n; ++i) turned(first + i, run.first + i * run.step);
  });
  CHECK(next == 39);
  std::vector<float> one(6);
  reader.widen_key(0, 1, 7, one.data());
  turned(7, one.data());
}

TEST_CASE("values come in runs that cover them once, in place or widened") {
  fixture<float, std::tuple<>> f(std::tuple<>{});
  std::int64_t next = 5;
  f.reader(posenc::key_state::rotated).for_value_runs(0, 0, 5, 40, [&](std::int64_t first, const auto& run) {
    CHECK(first == next);
    CHECK(run.first == f.vv.row(0, first, 0));
    CHECK(run.next == nullptr);  // nothing lies behind the last key
    next += run.n;
  });
  CHECK(next == 40);
  f.vv = posenc::view<const float>(f.v.data.data(), {1, 20, 2, 5}, {.token = 10, .head = 5, .dim = 2});
  next = 0;
  f.reader(posenc::key_state::rotated).for_value_runs(0, 0, 0, 20, [&](std::int64_t first, const auto& run) {
    for (std::int64_t i = 0; i < run.n; ++i)
      for (std::int64_t d = 0; d < 5; ++d) CHECK(run.first[i * run.step + d] == f.vv(0, first + i, 0, d));
    next += run.n;
  });
  CHECK(next == 20);
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
