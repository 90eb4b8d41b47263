// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What attention may not let through: memory beside the tensors, hidden keys and values, the floating-point mode of the
// caller; and what it has to: subnormal numbers.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"
#include "unit/attention/tensors.hpp"

#include <cfenv>
#include <optional>

#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace {

using namespace posenc_test;

constexpr std::int64_t heads = 8;
constexpr std::int64_t kv_heads = 2;  // groups of 4
constexpr std::int64_t first_keys = 10;
constexpr std::int64_t window = 20;

bool sees(std::int64_t query, std::int64_t key) { return key < first_keys || (key <= query && query - key < window); }

/// One instantiation serves the file: the first keys and a window, so most rows see two intervals.
auto policy_of(float sink) {
  return posenc::compose(posenc::sinks<float>(sink),
                         posenc::any_of{posenc::before{first_keys}, posenc::sliding_window{window}});
}

/// A tensor inside a larger buffer: some elements before it, after it, between its rows and between its tokens.
struct embedded {
  std::vector<float> memory;
  posenc::view<float> view;
  embedded(const posenc::shape& s, float beside)
      : memory(static_cast<std::size_t>(64 + s.batch * (s.tokens + 5) * (s.heads * (s.dim + 3) + 7) + 64), beside),
        view(memory.data() + 64, s,
             {.batch = (s.tokens + 5) * (s.heads * (s.dim + 3) + 7),
              .token = s.heads * (s.dim + 3) + 7,
              .head = s.dim + 3,
              .dim = 1}) {}
  void set(const stored<float>& from) {
    for (std::int64_t b = 0; b < view.batch(); ++b)
      for (std::int64_t t = 0; t < view.tokens(); ++t)
        for (std::int64_t h = 0; h < view.heads(); ++h)
          for (std::int64_t d = 0; d < view.dim(); ++d) view(b, t, h, d) = from.read()(b, t, h, d);
  }
};

struct problem {
  stored<float> q, k, v, out, lse;
  float sink = -inf_f;
  std::int64_t first_query = 0;
  std::optional<double> scale{};

  problem(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t dim, std::int64_t value_dim,
          double amplitude = 1) {
    std::mt19937 random(7);
    q = random_stored<float>(random, {batch, queries, heads, dim}, amplitude);
    k = random_stored<float>(random, {batch, keys, kv_heads, dim}, amplitude);
    v = random_stored<float>(random, {batch, keys, kv_heads, value_dim}, amplitude);
    out = stored<float>({batch, queries, heads, value_dim}, 7);
    lse = stored<float>({batch, queries, heads, 1}, 7);
    first_query = keys - queries;
  }
  void run() {
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy_of(sink),
                      {.query_positions = posenc::positions::from(first_query), .scale = scale, .lse = lse.view()});
  }
  [[nodiscard]] dense::answer expected() const {
    dense::problem p;
    p.q = to_dense(q);
    p.k = to_dense(k);
    p.v = to_dense(v);
    p.scale = scale.value_or(1 / std::sqrt(static_cast<double>(q.extents.dim)));
    p.visible = [this](auto, auto, auto i, auto j) { return sees(first_query + i, j); };
    p.sink = [this](auto) { return static_cast<double>(sink); };
    return dense::attention(p);
  }
};

/// Runs f under the given rounding direction; what it does is kept from moving out of the frame.
template <class F>
[[gnu::noinline]] void under(int rounding, const F& f) {
  const int before = std::fegetround();
  std::fesetround(rounding);
  f();
  std::fesetround(before);
}

}  // namespace

TEST_CASE("what lies before, between and behind the rows of q, k and v never reaches a result") {
  for (const std::int64_t queries : {1, 3, 30})
    for (const std::int64_t keys : {1, 127, 128, 137})
      for (const std::int64_t dim : {8, 13}) {
        if (queries > keys) continue;
        problem p(2, queries, keys, dim, dim + 1);
        std::vector<float> first;
        for (const float beside : {0.0f, nan_f, inf_f, -inf_f}) {
          embedded q(p.q.extents, beside);
          embedded k(p.k.extents, beside);
          embedded v(p.v.extents, beside);
          q.set(p.q);
          k.set(p.k);
          v.set(p.v);
          posenc::attention(q.view, k.view, v.view, p.out.view(), policy_of(-inf_f),
                            {.query_positions = posenc::positions::from(p.first_query), .lse = p.lse.view()});
          INFO(queries << " queries, " << keys << " keys, width " << dim << ", " << beside << " beside");
          if (first.empty()) {
            first = p.out.data;
            REQUIRE(relative_error(first, p.expected().out.data) <= 2e-6);
          }
          REQUIRE(same_bits(p.out.data.data(), first.data(), first.size()));
        }
      }
}

TEST_CASE("hidden keys and values may hold anything: between two intervals, behind the query, in no row's interval") {
  for (const std::int64_t queries : {1, 3, 30})
    for (const std::int64_t first_query : {100, 250}) {
      constexpr std::int64_t keys = 300;
      for (const float poison : {nan_f, inf_f, -inf_f})
        for (const bool in_keys : {false, true})
          for (const bool in_values : {false, true}) {
            problem p(1, queries, keys, 8, 12);
            p.first_query = first_query;
            const dense::answer expected = p.expected();
            for (std::int64_t j = 0; j < keys; ++j) {
              bool seen = false;
              for (std::int64_t i = 0; i < queries; ++i) seen = seen || sees(first_query + i, j);
              if (seen) continue;
              for (std::int64_t h = 0; h < kv_heads; ++h) {
                for (std::int64_t d = 0; d < 8 && in_keys; ++d) p.k(0, j, h, d) = poison;
                for (std::int64_t d = 0; d < 12 && in_values; ++d) p.v(0, j, h, d) = poison;
              }
            }
            p.run();
            INFO(queries << " queries from " << first_query << ", " << poison << " in" << (in_keys ? " keys" : "")
                         << (in_values ? " values" : ""));
            REQUIRE(relative_error(p.out.data, expected.out.data) <= 2e-6);
            REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-6);
          }
    }
}

TEST_CASE("a key that only some rows of a block see may hold anything for the others") {
  constexpr std::int64_t keys = 200;
  for (const float poison : {nan_f, inf_f}) {
    problem p(1, 30, keys, 8, 12);
    p.first_query = 150;
    const dense::answer expected = p.expected();
    // Key 179 is seen by the last row alone, 131 by the first alone.
    for (const std::int64_t j : {131, 179})
      for (std::int64_t h = 0; h < kv_heads; ++h)
        for (std::int64_t d = 0; d < 12; ++d) p.v(0, j, h, d) = poison;
    p.run();
    for (std::int64_t i = 0; i < 30; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < 12; ++d) {
          if (i == 0 || i == 29) {
            REQUIRE_FALSE(std::isfinite(p.out(0, i, h, d)));
          } else {
            REQUIRE(std::abs(static_cast<double>(p.out(0, i, h, d)) - expected.out(0, i, h, d)) <= 2e-6);
          }
        }
    REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-6);
  }
}

TEST_CASE("rows that see nothing give zeros and -inf, or their sink, whatever the keys hold") {
  for (const std::int64_t queries : {1, 30})
    for (const float sink : {-inf_f, 0.25f, -90.0f, 60.0f}) {
      constexpr std::int64_t keys = 40;
      problem p(1, queries, keys, 8, 8);
      p.sink = sink;
      // Positions of keys start at 1000, queries at 0: no key is below 10, none in a window.
      for (float& x : p.k.data) x = nan_f;
      for (float& x : p.v.data) x = nan_f;
      posenc::attention(p.q.view(), p.k.view(), p.v.view(), p.out.view(), policy_of(sink),
                        {.key_positions = posenc::positions::from(1000), .lse = p.lse.view()});
      for (const float x : p.out.data) REQUIRE(x == 0);
      for (const float x : p.lse.data) REQUIRE(x == sink);
      // The same beside rows that see keys: queries from 971 on, the first keys come into sight at 1000.
      problem half(1, 60, keys, 8, 8);
      half.sink = sink;
      posenc::attention(half.q.view(), half.k.view(), half.v.view(), half.out.view(), policy_of(sink),
                        {.query_positions = posenc::positions::from(971),
                         .key_positions = posenc::positions::from(1000),
                         .lse = half.lse.view()});
      for (std::int64_t i = 0; i < 60; ++i)
        for (std::int64_t h = 0; h < heads; ++h) {
          REQUIRE((half.lse(0, i, h, 0) == sink) == (i < 29 || (sink == 60.0f && i < 60)));
          for (std::int64_t d = 0; d < 8; ++d) REQUIRE((half.out(0, i, h, d) == 0) == (i < 29));
        }
    }
}

TEST_CASE("queries, keys and values that are all subnormal: even weights, right to the step of subnormal numbers") {
  constexpr double step = 0x1p-149;
  for (const std::int64_t queries : {1, 30}) {
    problem p(1, queries, 137, 16, 16, 0x1p-127);
    const dense::answer expected = p.expected();
    REQUIRE(largest(expected.out.data) > 1000 * step);
    p.run();
    for (std::size_t i = 0; i < p.out.data.size(); ++i)
      REQUIRE(std::abs(static_cast<double>(p.out.data[i]) - expected.out.data[i]) <= 32 * step);
    REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-6);
  }
}

TEST_CASE("subnormal queries under a scale that makes their logits ordinary") {
  for (const std::int64_t queries : {1, 30}) {
    problem p(1, queries, 137, 16, 16);
    for (float& x : p.q.data) x *= 0x1p-127f;
    p.scale = 0x1p+126;
    const dense::answer expected = p.expected();
    REQUIRE(largest(expected.lse.data) > 3);
    p.run();
    REQUIRE(relative_error(p.out.data, expected.out.data) <= 2e-6);
    REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-6);
  }
}

TEST_CASE("weights too small for a normal number beside one that is not") {
  for (const std::int64_t queries : {1, 30}) {
    problem p(1, queries, 137, 16, 16);
    for (float& x : p.q.data) x = std::round(4 * x);  // logits are exact
    for (float& x : p.k.data) x = std::round(4 * x);
    p.scale = 1;
    const dense::answer expected = p.expected();
    bool small = false;
    for (const double w : expected.weights.data) small = small || (w > 1e-44 && w < 1e-38);
    REQUIRE(small);
    p.run();
    REQUIRE(relative_error(p.out.data, expected.out.data) <= 2e-6);
    REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-6);
  }
}

TEST_CASE("the rounding direction is the caller's, before and after") {
  for (const std::int64_t queries : {1, 30}) {
    problem p(1, queries, 137, 16, 16);
    const dense::answer expected = p.expected();
    for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      int after = -1;
      under(rounding, [&] {
        p.run();
        after = std::fegetround();
      });
      INFO("direction " << rounding);
      REQUIRE(after == rounding);
      // A directed rounding errs to one side: sums over the keys drift.
      REQUIRE(relative_error(p.out.data, expected.out.data) <= 2e-5);
      REQUIRE(relative_error(p.lse.data, expected.lse.data) <= 2e-5);
    }
  }
}

#if defined(__unix__)
namespace {
/// Rows of 16 floats on pages of their own, of which some cannot be read.
class guarded_rows {
 public:
  explicit guarded_rows(std::int64_t rows) : bytes_(static_cast<std::size_t>(rows) * 64) {
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    data_ = static_cast<float*>(p);
    for (std::size_t i = 0; i < bytes_ / sizeof(float); ++i) data_[i] = static_cast<float>(i % 17) / 17;
  }
  guarded_rows(const guarded_rows&) = delete;
  guarded_rows& operator=(const guarded_rows&) = delete;
  ~guarded_rows() { ::munmap(data_, bytes_); }
  void forbid(std::int64_t first, std::int64_t end) {
    REQUIRE(first * 64 % ::sysconf(_SC_PAGESIZE) == 0);
    REQUIRE(end * 64 % ::sysconf(_SC_PAGESIZE) == 0);
    REQUIRE(::mprotect(data_ + first * 16, static_cast<std::size_t>(end - first) * 64, PROT_NONE) == 0);
  }
  [[nodiscard]] posenc::view<float> view(std::int64_t rows) const { return {data_, {.tokens = rows, .dim = 16}}; }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};
}  // namespace

TEST_CASE("tiles outside every row's intervals are not touched, with contiguous and with sorted listed ids") {
  constexpr std::int64_t keys = 8192;
  // Sorted with gaps and duplicates; contiguous keys begin where the first keys end up in sight.
  std::vector<std::int64_t> ids(keys);
  for (std::int64_t j = 0; j < keys; ++j) ids[static_cast<std::size_t>(j)] = j < 4 ? j : 5 + 3 * (j / 2);
  guarded_rows k(keys);
  guarded_rows v(keys);
  stored<float> q({1, 40, 1, 16}, 0.5);
  stored<float> out({1, 40, 1, 16}, 7);
  // The window of every query lies between keys 4096 and 5120, the first keys before 1024.
  for (auto* rows : {&k, &v}) {
    rows->forbid(1024, 4096);
    rows->forbid(5120, keys);
  }
  for (const bool listed : {false, true})
    for (const std::int64_t queries : {1, 40}) {
      const std::int64_t first = listed ? ids[4600] : 4600;
      posenc::attention(posenc::view<float>(q.data.data(), {.tokens = queries, .dim = 16}), k.view(keys), v.view(keys),
                        posenc::view<float>(out.data.data(), {.tokens = queries, .dim = 16}), policy_of(-inf_f),
                        {.query_positions = posenc::positions::from(first),
                         .key_positions = listed ? posenc::positions::listed(ids) : posenc::positions::from(0)});
      for (std::int64_t i = 0; i < queries * 16; ++i) REQUIRE(out.data[static_cast<std::size_t>(i)] < 1);
    }
}
#endif

#if defined(__SSE2__)
TEST_CASE("the control register of the caller is the same after the call, results are right under each") {
  constexpr unsigned sticky = 0x3fu;
  constexpr unsigned flush = 0x8000u;
  constexpr unsigned zeros = 0x0040u;
  const unsigned before = _mm_getcsr();
  for (const std::int64_t queries : {1, 30})
    for (const unsigned mode : {0u, flush, zeros, flush | zeros})
      for (const unsigned rounding : {0x0000u, 0x2000u, 0x4000u, 0x6000u}) {
        problem p(1, queries, 137, 16, 16);
        problem small(1, queries, 137, 16, 16, 0x1p-127);
        const dense::answer expected = p.expected();
        const unsigned mine = (before & ~(flush | zeros | 0x6000u | sticky)) | mode | rounding;
        _mm_setcsr(mine);
        p.run();
        small.run();
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        INFO("mode " << mine);
        REQUIRE((after & ~sticky) == mine);
        REQUIRE(relative_error(p.out.data, expected.out.data) <= 2e-5);
        for (const float x : small.out.data) REQUIRE(std::abs(x) <= std::numeric_limits<float>::min());
      }
}
#endif
