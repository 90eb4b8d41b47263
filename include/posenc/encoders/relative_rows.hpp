// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A table of rows by distance, for content-dependent relative encodings: shaw, deberta, transformer_xl.

#include <posenc/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace posenc {

/// Rows for the distances least .. greatest of key from query; beyond them the row of the nearer end serves. `tables`
/// is 1 (shared by all heads) or the heads.
template <class T>
class relative_rows {
 public:
  relative_rows() = default;

  /// Row d - least for distance d: `rows` is [tables, greatest - least + 1, dim].
  relative_rows(std::int64_t tables, std::int64_t dim, std::int64_t least, std::int64_t greatest, std::vector<T> rows)
      : tables_(tables),
        dim_(dim),
        least_(least),
        greatest_(greatest),
        count_(greatest - least + 1),
        rows_(std::move(rows)) {}

  /// Row index(d) of `table` [tables, table_rows, dim] for distance d, where index never falls as d grows. Rows that no
  /// distance has are left out.
  template <class Index>
  relative_rows(std::int64_t tables, std::int64_t dim, std::int64_t least, std::int64_t greatest,
                std::int64_t table_rows, const T* table, const Index& index)
      : tables_(tables), dim_(dim), least_(least), greatest_(greatest) {
    std::vector<std::int64_t> used;
    place_.reserve(static_cast<std::size_t>(greatest - least + 1));
    for (std::int64_t d = least; d <= greatest; ++d) {
      if (used.empty() || used.back() != index(d)) used.push_back(index(d));
      place_.push_back(static_cast<std::int32_t>(used.size() - 1));
    }
    count_ = static_cast<std::int64_t>(used.size());
    if (count_ == greatest - least + 1) place_.clear();
    rows_.reserve(static_cast<std::size_t>(tables * count_ * dim));
    for (std::int64_t t = 0; t < tables; ++t)
      for (const std::int64_t u : used) {
        const T* row = table + (t * table_rows + u) * dim;
        rows_.insert(rows_.end(), row, row + dim);
      }
  }

  [[nodiscard]] std::int64_t tables() const noexcept { return tables_; }
  [[nodiscard]] std::int64_t dim() const noexcept { return dim_; }
  [[nodiscard]] std::int64_t least() const noexcept { return least_; }
  [[nodiscard]] std::int64_t greatest() const noexcept { return greatest_; }
  /// Rows of one table.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// Whether neighbouring distances have neighbouring rows.
  [[nodiscard]] bool exact() const noexcept { return place_.empty(); }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return rows_.size() * sizeof(T) + place_.size() * sizeof(std::int32_t);
  }
  /// The place of a distance's row in the table.
  [[nodiscard]] std::int64_t place(std::int64_t distance) const noexcept {
    const std::int64_t d = std::clamp(distance, least_, greatest_) - least_;
    return place_.empty() ? d : place_[static_cast<std::size_t>(d)];
  }
  [[nodiscard]] const T* table(std::int64_t head) const noexcept {
    return rows_.data() + (tables_ == 1 ? 0 : head) * count_ * dim_;
  }
  [[nodiscard]] const T* row(std::int64_t head, std::int64_t distance) const noexcept {
    return table(head) + place(distance) * dim_;
  }

 private:
  std::int64_t tables_ = 1;
  std::int64_t dim_ = 0;
  std::int64_t least_ = 0;
  std::int64_t greatest_ = 0;
  std::int64_t count_ = 0;
  std::vector<T> rows_;
  std::vector<std::int32_t> place_;
};

}  // namespace posenc
