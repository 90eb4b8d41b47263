// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>

#include "support/catch.hpp"

#include <unsupported/Eigen/CXX11/Tensor>

#include <numeric>
#include <type_traits>
#include <vector>

namespace {

/// Whether view(0, t, h, d) is m(t, h * dim + d), by address.
template <class Dense>
bool matches(Dense&& m, std::int64_t heads) {
  const auto v = posenc::as_view(m, heads);
  const std::int64_t dim = m.cols() / heads;
  if (v.extents() != posenc::shape{.batch = 1, .tokens = m.rows(), .heads = heads, .dim = dim}) return false;
  for (std::int64_t t = 0; t < m.rows(); ++t)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d)
        if (&v(0, t, h, d) != &m.coeffRef(t, h * dim + d)) return false;
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE("eigen: a matrix is tokens by heads times dim, in either storage order", "[core][eigen]", float,
                   double, Eigen::half, Eigen::bfloat16) {
  using row_major = Eigen::Matrix<TestType, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using col_major = Eigen::Matrix<TestType, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  row_major r(7, 12);
  col_major c(7, 12);
  CHECK(matches(r, 1));
  CHECK(matches(r, 3));
  CHECK(matches(c, 1));
  CHECK(matches(c, 4));
  CHECK(posenc::as_view(r, 3).unit_dim_stride());
  CHECK(!posenc::as_view(c, 3).unit_dim_stride());
  // Blocks and references keep the outer stride of what they lie in.
  auto block = r.block(2, 4, 3, 6);
  CHECK(matches(block, 2));
  Eigen::Ref<row_major, 0, Eigen::OuterStride<>> ref(block);
  CHECK(matches(ref, 2));
  auto part = c.block(1, 2, 4, 8);
  CHECK(matches(part, 2));
  std::vector<TestType> memory(200);
  Eigen::Map<row_major> map(memory.data(), 5, 8);
  CHECK(matches(map, 2));
  Eigen::Map<row_major, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> strided(
      memory.data(), 5, 8, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(20, 2));
  CHECK(matches(strided, 4));
  Eigen::Map<col_major, 0, Eigen::OuterStride<>> tall(memory.data(), 5, 8, Eigen::OuterStride<>(9));
  CHECK(matches(tall, 2));
  Eigen::Matrix<TestType, 3, 4> fixed;
  CHECK(matches(fixed, 2));
  Eigen::Matrix<TestType, 1, Eigen::Dynamic> line(8);
  CHECK(matches(line, 2));
  CHECK(posenc::as_view(line, 2).unit_dim_stride());
}

TEST_CASE("eigen: const matrices give const views", "[core][eigen]") {
  const Eigen::MatrixXf m = Eigen::MatrixXf::Zero(3, 4);
  STATIC_REQUIRE(std::is_same_v<decltype(posenc::as_view(m)), posenc::view<const float>>);
  const Eigen::Ref<const Eigen::MatrixXf> ref(m);
  STATIC_REQUIRE(std::is_same_v<decltype(posenc::as_view(ref)), posenc::view<const float>>);
  CHECK(posenc::as_view(ref).data() == m.data());
  const Eigen::Map<const Eigen::MatrixXf> map(m.data(), 4, 3);
  STATIC_REQUIRE(std::is_same_v<decltype(posenc::as_view(map)), posenc::view<const float>>);
}

TEST_CASE("eigen: columns must split into heads", "[core][eigen]") {
  Eigen::MatrixXf m(3, 10);
  CHECK_THROWS_WITH(posenc::as_view(m, 3), "posenc::as_view: columns must be a multiple of heads, got 10");
  CHECK_THROWS_WITH(posenc::as_view(m, 0), "posenc::as_view: heads must be at least 1, got 0");
  CHECK_THROWS_AS(posenc::as_view(m, -2), std::invalid_argument);
  Eigen::MatrixXf none(0, 4);
  CHECK(posenc::as_view(none, 2).empty());
}

namespace {

template <int Layout>
void check_tensors() {
  std::vector<float> data(2 * 3 * 4 * 5);
  std::iota(data.begin(), data.end(), 0.0f);
  Eigen::TensorMap<Eigen::Tensor<float, 4, Layout>> four(data.data(), 2, 3, 4, 5);
  Eigen::TensorMap<Eigen::Tensor<float, 3, Layout>> three(data.data(), 6, 4, 5);
  Eigen::TensorMap<Eigen::Tensor<float, 2, Layout>> two(data.data(), 24, 5);
  const auto v4 = posenc::as_view(four);
  const auto v3 = posenc::as_view(three);
  const auto v2 = posenc::as_view(two);
  CHECK(v4.extents() == posenc::shape{.batch = 2, .tokens = 3, .heads = 4, .dim = 5});
  CHECK(v3.extents() == posenc::shape{.batch = 1, .tokens = 6, .heads = 4, .dim = 5});
  CHECK(v2.extents() == posenc::shape{.batch = 1, .tokens = 24, .heads = 1, .dim = 5});
  int wrong = 0;
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 3; ++t)
      for (int h = 0; h < 4; ++h)
        for (int d = 0; d < 5; ++d) wrong += v4(b, t, h, d) != four(b, t, h, d);
  for (int t = 0; t < 6; ++t)
    for (int h = 0; h < 4; ++h)
      for (int d = 0; d < 5; ++d) wrong += v3(0, t, h, d) != three(t, h, d);
  for (int t = 0; t < 24; ++t)
    for (int d = 0; d < 5; ++d) wrong += v2(0, t, 0, d) != two(t, d);
  CHECK(wrong == 0);
  CHECK(v4.unit_dim_stride() == (Layout == Eigen::RowMajor));
}

}  // namespace

TEST_CASE("eigen: tensors of rank 2 to 4, in either storage order", "[core][eigen]") {
  check_tensors<Eigen::RowMajor>();
  check_tensors<Eigen::ColMajor>();
  Eigen::Tensor<double, 3, Eigen::RowMajor> owned(2, 3, 4);
  CHECK(posenc::as_view(owned).data() == owned.data());
  std::vector<float> data(6);
  const Eigen::TensorMap<const Eigen::Tensor<float, 2, Eigen::RowMajor>> fixed(data.data(), 2, 3);
  STATIC_REQUIRE(std::is_same_v<decltype(posenc::as_view(fixed)), posenc::view<const float>>);
  CHECK(posenc::as_view(fixed).dim() == 3);
}
