// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Learned tables for another grid: a table [prefix + rows * columns + suffix, channels] is resampled axis by axis, as
/// a vision transformer does for images of another size. Rows before and after the grid (class and register tokens, the
/// three entries that BEiT keeps at the end) are copied. With n samples becoming m:
///   step     (n - 1) / (m - 1) with align_corners (0 for m = 1), 1 / scale_factor where one is given, else n / m
///   source   s = o * step with align_corners, else (o + 0.5) * step - 0.5, for output o
///   bilinear two taps around max(s, 0); bicubic: four taps floor(s) - 1 .. floor(s) + 2, Keys' kernel with a = -0.75;
///            indices past an end are that end
///   antialias  centre c = (o + 0.5) * step, support 1 (bilinear) or 2 (bicubic, a = -0.5) times max(step, 1), weights
///            normalised to sum 1. It changes bicubic enlarging too, because a differs.
/// One axis alone (rel_pos of MViT and SAM: L rows become n) is a grid of one column.
/// Domain   1 .. 2^31 rows and columns. Error: weights and sums in double, one rounding to the table's type; a resize
///          to the same size changes no value.
/// Cost     the taps, found once: at most 4 per output line without antialias, so the work is linear in the output;
///          with antialias linear in input plus output. Scratch is a few lines of one row of the new grid.
/// Throws   std::invalid_argument for impossible options and for a table that does not fit.
/// Who uses it  ViT, DeiT, DINOv2, MAE, Swin, SigLIP 2, SAM, MViT.
/// Example  examples/table_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/scalar.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace posenc {

enum class resize_mode { bilinear, bicubic };

struct table_extent {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  friend constexpr bool operator==(const table_extent&, const table_extent&) = default;
};

struct resize_options {
  table_extent from{};
  /// Where it is absent, floor(from * scale_factor).
  std::optional<table_extent> to{};
  resize_mode mode = resize_mode::bicubic;
  bool align_corners = false;
  bool antialias = false;
  /// {rows, columns}: the original DINO gives (wanted + 0.1) / from, which makes its step differ from n / m.
  std::optional<std::array<double, 2>> scale_factor{};
  std::int64_t prefix_rows = 0;
  std::int64_t suffix_rows = 0;
};

/// One axis of a resize: a sparse matrix [to, from].
class resize_axis {
 public:
  struct tap {
    std::int64_t index;
    double weight;
  };

  resize_axis(std::int64_t from, std::int64_t to, resize_mode mode, bool align_corners, bool antialias,
              std::optional<double> scale_factor)
      : from_(from), to_(to) {
    const auto n = static_cast<double>(from);
    const double step = align_corners ? (to > 1 ? (n - 1) / static_cast<double>(to - 1) : 0.0)
                                      : (scale_factor ? 1 / *scale_factor : n / static_cast<double>(to));
    for (std::int64_t o = 0; o < to; ++o) {
      const double centre = (static_cast<double>(o) + 0.5) * step;
      if (antialias) {
        smooth(centre, std::max(step, 1.0), mode);
      } else {
        interpolate(align_corners ? static_cast<double>(o) * step : centre - 0.5, align_corners, mode);
      }
      ends_.push_back(taps_.size());
    }
  }

  [[nodiscard]] std::int64_t from() const noexcept { return from_; }
  [[nodiscard]] std::int64_t to() const noexcept { return to_; }
  /// What output o is made of, by ascending index, without zero weights.
  [[nodiscard]] std::span<const tap> taps(std::int64_t o) const& noexcept {
    const std::size_t begin = o == 0 ? 0 : ends_[static_cast<std::size_t>(o - 1)];
    return {taps_.data() + begin, ends_[static_cast<std::size_t>(o)] - begin};
  }
  std::span<const tap> taps(std::int64_t o) && = delete;
  /// The most indices that lie between the first and the last tap of one output, both counted.
  [[nodiscard]] std::int64_t width() const noexcept {
    std::int64_t w = 1;
    for (std::int64_t o = 0; o < to_; ++o)
      if (const auto t = taps(o); !t.empty()) w = std::max(w, t.back().index - t.front().index + 1);
    return w;
  }

  [[nodiscard]] resize_axis transposed() const {
    resize_axis t;
    t.from_ = to_;
    t.to_ = from_;
    t.ends_.assign(static_cast<std::size_t>(from_), 0);
    for (const tap& each : taps_) ++t.ends_[static_cast<std::size_t>(each.index)];
    std::size_t before = 0;
    for (std::size_t& end : t.ends_) before += std::exchange(end, before);
    t.taps_.resize(taps_.size());
    // `ends_` holds where each list begins until its last tap is in place.
    for (std::int64_t o = 0; o < to_; ++o)
      for (const tap& each : taps(o)) t.taps_[t.ends_[static_cast<std::size_t>(each.index)]++] = {o, each.weight};
    return t;
  }

 private:
  resize_axis() = default;

  static double cubic(double t, double a) noexcept {
    t = std::abs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0.0;
  }
  /// Ends that several taps are clamped to become one tap.
  void add(double index, double weight) {
    const std::int64_t i = std::clamp<std::int64_t>(static_cast<std::int64_t>(index), 0, from_ - 1);
    const std::size_t begin = ends_.empty() ? 0 : ends_.back();
    if (taps_.size() > begin && taps_.back().index == i) {
      taps_.back().weight += weight;
    } else if (weight != 0) {
      taps_.push_back({i, weight});
    }
  }
  void interpolate(double s, bool align_corners, resize_mode mode) {
    if (mode == resize_mode::bilinear) {
      if (!align_corners) s = std::max(s, 0.0);
      const double floor = std::min(std::floor(s), static_cast<double>(from_ - 1));
      add(floor, 1 - (s - floor));
      add(floor + 1, s - floor);
    } else {
      const double floor = std::floor(s);
      for (int i = -1; i <= 2; ++i) add(floor + i, cubic(s - (floor + i), -0.75));
    }
  }
  void smooth(double centre, double unit, resize_mode mode) {
    const double reach = (mode == resize_mode::bicubic ? 2 : 1) * unit;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - reach + 0.5), 0);
    const auto last = std::min<std::int64_t>(static_cast<std::int64_t>(centre + reach + 0.5), from_);
    const auto weight = [&](std::int64_t j) {
      const double t = (static_cast<double>(j) - centre + 0.5) / unit;
      return mode == resize_mode::bicubic ? cubic(t, -0.5) : std::max(0.0, 1 - std::abs(t));
    };
    double sum = 0;
    for (std::int64_t j = first; j < last; ++j) sum += weight(j);
    for (std::int64_t j = first; j < last; ++j) add(static_cast<double>(j), weight(j) / sum);
  }

  std::int64_t from_ = 0;
  std::int64_t to_ = 0;
  std::vector<tap> taps_;
  std::vector<std::size_t> ends_;
};

/// See the file comment. `resize(table)` is linear, and `adjoint` its transpose: <resize(x), y> = <x, adjoint(y)>.
class table_resize {
 public:
  explicit table_resize(const resize_options& o) : table_resize(o, checked(o)) {}

  /// The new table. The number of channels follows from its size.
  template <class T>
  [[nodiscard]] std::vector<T> operator()(std::span<const T> table) const {
    return run("table_resize", rows_, columns_, table, "table", "rows of the table");
  }
  template <class T>
  [[nodiscard]] std::vector<T> operator()(const std::vector<T>& table) const {
    return (*this)(std::span<const T>(table));
  }
  /// The gradient of the old table from that of the new one.
  template <class T>
  [[nodiscard]] std::vector<T> adjoint(std::span<const T> upstream) const {
    return run("table_resize::adjoint", rows_back_, columns_back_, upstream, "upstream", "rows of the new table");
  }
  template <class T>
  [[nodiscard]] std::vector<T> adjoint(const std::vector<T>& upstream) const {
    return adjoint(std::span<const T>(upstream));
  }

  [[nodiscard]] table_extent from() const noexcept { return {rows_.from(), columns_.from()}; }
  [[nodiscard]] table_extent to() const noexcept { return {rows_.to(), columns_.to()}; }
  /// All rows of the old and of the new table, those that are copied included.
  [[nodiscard]] std::int64_t rows_before() const noexcept { return prefix_ + rows_.from() * columns_.from() + suffix_; }
  [[nodiscard]] std::int64_t rows_after() const noexcept { return prefix_ + rows_.to() * columns_.to() + suffix_; }
  [[nodiscard]] const resize_axis& row_axis() const noexcept { return rows_; }
  [[nodiscard]] const resize_axis& column_axis() const noexcept { return columns_; }

 private:
  static table_extent checked(const resize_options& o) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    const auto check = [](std::int64_t n, const char* name) {
      detail::require(n >= 1 && n <= most, "table_resize", name, "must lie in 1..2^31", n);
    };
    check(o.from.rows, "from.rows");
    check(o.from.columns, "from.columns");
    detail::require(o.prefix_rows >= 0, "table_resize", "prefix_rows", "must not be negative", o.prefix_rows);
    detail::require(o.suffix_rows >= 0, "table_resize", "suffix_rows", "must not be negative", o.suffix_rows);
    detail::require(!(o.align_corners && o.antialias), "table_resize", "antialias", "must not go with align_corners",
                    true);
    detail::require(o.to || o.scale_factor, "table_resize", "to", "or scale_factor must be given", "neither");
    table_extent to = o.to.value_or(table_extent{});
    if (o.scale_factor) {
      const auto scaled = [](std::int64_t n, double factor) {
        detail::require(factor > 0 && static_cast<double>(n) * factor < static_cast<double>(most) + 1, "table_resize",
                        "scale_factor", "must be positive and leave at most 2^31 rows", factor);
        return static_cast<std::int64_t>(std::floor(static_cast<double>(n) * factor));
      };
      const table_extent given{scaled(o.from.rows, (*o.scale_factor)[0]), scaled(o.from.columns, (*o.scale_factor)[1])};
      detail::require(!o.to || o.to->rows == given.rows, "table_resize", "to.rows",
                      "must be floor(from * scale_factor)", to.rows);
      detail::require(!o.to || o.to->columns == given.columns, "table_resize", "to.columns",
                      "must be floor(from * scale_factor)", to.columns);
      to = given;
    }
    check(to.rows, "to.rows");
    check(to.columns, "to.columns");
    return to;
  }
  table_resize(const resize_options& o, const table_extent& to)
      : rows_(o.from.rows, to.rows, o.mode, o.align_corners, o.antialias, factor(o, 0)),
        columns_(o.from.columns, to.columns, o.mode, o.align_corners, o.antialias, factor(o, 1)),
        rows_back_(rows_.transposed()),
        columns_back_(columns_.transposed()),
        prefix_(o.prefix_rows),
        suffix_(o.suffix_rows) {}
  static std::optional<double> factor(const resize_options& o, std::size_t axis) {
    return o.scale_factor ? std::optional<double>((*o.scale_factor)[axis]) : std::nullopt;
  }

  /// 16-bit types, float and double are summed in double; other scalars by their own arithmetic.
  template <class T>
  using sum_of = std::conditional_t<simd_storage<T>, double, T>;

  /// The columns of one row of the grid: line[o] = sum of weight * row[index].
  template <class T>
  static void resize_row(const resize_axis& columns, const T* row, std::size_t channels, sum_of<T>* line) {
    for (std::int64_t o = 0; o < columns.to(); ++o, line += channels) {
      std::fill_n(line, channels, sum_of<T>(0));
      for (const auto& [index, weight] : columns.taps(o)) {
        const T* from = row + static_cast<std::size_t>(index) * channels;
        for (std::size_t c = 0; c < channels; ++c)
          line[c] += sum_of<T>(weight) * static_cast<sum_of<T>>(widen(from[c]));
      }
    }
  }

  template <class T>
  std::vector<T> run(const char* function, const resize_axis& rows, const resize_axis& columns, std::span<const T> in,
                     const char* name, const char* what) const {
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    const std::size_t all = size(prefix_ + rows.from() * columns.from() + suffix_);
    detail::require(in.size() % all == 0, function, name,
                    std::string("must hold a multiple of the ") + std::to_string(all) + " " + what, in.size());
    const std::size_t channels = in.size() / all;
    const std::size_t prefix = size(prefix_) * channels;
    const std::size_t suffix = size(suffix_) * channels;
    const std::size_t length = size(columns.to()) * channels;
    std::vector<T> out(prefix + size(rows.to()) * length + suffix);
    std::copy_n(in.begin(), prefix, out.begin());
    T* to = out.data() + prefix;

    // Resized rows that are still needed: row j of the old grid lies in slot j mod width.
    const std::int64_t width = rows.width();
    std::vector<sum_of<T>> lines(size(width) * length);
    std::vector<std::int64_t> held(size(width), -1);
    std::vector<sum_of<T>> sum(length);
    for (std::int64_t o = 0; o < rows.to(); ++o) {
      std::fill(sum.begin(), sum.end(), sum_of<T>(0));
      for (const auto& [index, weight] : rows.taps(o)) {
        const std::size_t slot = size(index % width);
        sum_of<T>* line = lines.data() + slot * length;
        if (std::exchange(held[slot], index) != index)
          resize_row(columns, in.data() + prefix + size(index * columns.from()) * channels, channels, line);
        for (std::size_t i = 0; i < length; ++i) sum[i] += sum_of<T>(weight) * line[i];
      }
      for (std::size_t i = 0; i < length; ++i) to[i] = narrow<T>(sum[i]);
      to += length;
    }
    std::copy_n(in.end() - static_cast<std::ptrdiff_t>(suffix), suffix, to);
    return out;
  }

  resize_axis rows_;
  resize_axis columns_;
  resize_axis rows_back_;
  resize_axis columns_back_;
  std::int64_t prefix_;
  std::int64_t suffix_;
};

}  // namespace posenc
