// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The readers of the examples on files made here: what is cut short, lies about its sizes or is of another kind.

#include "support/catch.hpp"
#include "support/ctranslate2_model.hpp"
#include "support/encoder_decoder.hpp"
#include "support/pairs.hpp"
#include "support/safetensors.hpp"
#include "support/vocabulary.hpp"

#include <filesystem>

using namespace posenc_examples;

namespace {

/// A file that is there as long as this is.
class file {
 public:
  explicit file(const std::string& bytes)
      : path_((std::filesystem::temp_directory_path() / "posenc_reader_test").string()) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~file() { std::filesystem::remove(path_); }
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

template <class N>
std::string bytes_of(N n) {
  return {reinterpret_cast<const char*>(&n), sizeof n};
}
std::string text(const std::string& s) { return bytes_of(static_cast<std::uint16_t>(s.size() + 1)) + s + '\0'; }
std::string head(std::uint32_t variables, std::uint32_t version = 2) {
  return bytes_of(version) + text("Spec") + bytes_of(std::uint32_t{7}) + bytes_of(variables);
}
std::string floats(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bytes_of(static_cast<float>(i));
  return all;
}
std::string variable(const std::string& name, const std::vector<std::uint32_t>& dims, std::uint32_t items,
                     const std::string& data, std::uint8_t item_bytes = 4) {
  std::string all = text(name) + bytes_of(static_cast<std::uint8_t>(dims.size()));
  for (const std::uint32_t d : dims) all += bytes_of(d);
  return all + bytes_of(item_bytes) + bytes_of(items) + data;
}

void refuses_ctranslate2(const std::string& bytes, const char* words) {
  const file f(bytes);
  CHECK_THROWS_WITH(ctranslate2_model(f.path()), posenc_test::contains(words));
}
void refuses_tensors(const std::string& json, const std::string& data, const char* words) {
  const file f(bytes_of(std::uint64_t{json.size()}) + json + data);
  const auto read = [&] { return safetensors(f.path()).tensor<float>("w", 2, 3); };
  CHECK_THROWS_WITH(read(), posenc_test::contains(words));
}

}  // namespace

TEST_CASE("readers: a CTranslate2 model", "[models]") {
  const file f(head(3) + variable("a/weight", {2, 3}, 6, floats(6)) + variable("a/bias", {3}, 3, floats(3)) +
               variable("half", {2}, 2, "abcd", 2));
  const ctranslate2_model m(f.path());
  CHECK(m.spec() == "Spec");
  CHECK(m.variables() == 3);
  CHECK(m.tensor<double>("a/weight", 2, 3)(1, 2) == 5);
  CHECK(m.vector<float>("a/bias", 3)(2) == 2);
  CHECK_THROWS_WITH(m.tensor<float>("b", 2, 3), posenc_test::contains("no variable b"));
  CHECK_THROWS_WITH(m.tensor<float>("a/weight", 3, 2), posenc_test::contains("has not the shape 3 x 2"));
  CHECK_THROWS_WITH(m.vector<float>("a/weight", 6), posenc_test::contains("has not the shape"));
  CHECK_THROWS_WITH(m.vector<float>("half", 2), posenc_test::contains("half is not float32"));
}

TEST_CASE("readers: a CTranslate2 model that ends anywhere too early is refused", "[models]") {
  const std::string whole = head(2) + variable("a", {2, 3}, 6, floats(6)) + variable("b", {1}, 1, floats(1));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    refuses_ctranslate2(whole.substr(0, n), "ends early");
  }
  refuses_ctranslate2(whole + "x", "1 bytes follow");
}

TEST_CASE("readers: a CTranslate2 model that lies is refused", "[models]") {
  constexpr std::uint32_t most = 0xffffffff;
  refuses_ctranslate2(head(0, 3), "binary version 2, version 3");
  refuses_ctranslate2(bytes_of(std::uint32_t{2}) + bytes_of(std::uint16_t{0}), "does not end in its only 0");
  refuses_ctranslate2(bytes_of(std::uint32_t{2}) + bytes_of(std::uint16_t{2}) + "ab", "does not end in its only 0");
  refuses_ctranslate2(bytes_of(std::uint32_t{2}) + bytes_of(std::uint16_t{2}) + std::string(2, '\0'), "only 0");
  refuses_ctranslate2(bytes_of(std::uint32_t{2}) + bytes_of(std::uint16_t{0xffff}) + "ab", "ends early");
  refuses_ctranslate2(head(most) + variable("a", {1}, 1, floats(1)), "ends early");
  refuses_ctranslate2(head(1) + variable("a", {2, 3}, 5, floats(6)), "a has not the size of its shape");
  refuses_ctranslate2(head(1) + variable("a", {2, 3}, 7, floats(7)), "a has not the size of its shape");
  refuses_ctranslate2(head(1) + variable("a", {}, 0, ""), "a has not the size of its shape");
  // Products that come back to a small number modulo 2^64, or to 0.
  refuses_ctranslate2(head(1) + variable("a", {1u << 31, 1u << 31, 4}, 0, ""), "a has not the size of its shape");
  refuses_ctranslate2(head(1) + variable("a", {1u << 31, 1u << 31, 4, 6}, 6, floats(6)), "has not the size");
  refuses_ctranslate2(head(1) + variable("a", std::vector<std::uint32_t>(255, most), 6, floats(6)), "not the size");
  refuses_ctranslate2(head(1) + variable("a", {most}, most, floats(6)), "ends early, 17179869180 bytes wanted");
  refuses_ctranslate2(head(1) + variable("a", {most}, most, floats(6), 255), "ends early");
  refuses_ctranslate2(head(2) + variable("a", {1}, 1, floats(1)) + variable("a", {1}, 1, floats(1)), "a stands there");
  // A rank of 0 is one number, an extent of 0 none.
  const file f(head(2) + variable("a", {}, 1, floats(1)) + variable("b", {0, most}, 0, ""));
  CHECK(ctranslate2_model(f.path()).variables() == 2);
}

TEST_CASE("readers: safetensors that lie are refused", "[models]") {
  const std::string shape = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":)";
  const file right_file(bytes_of(std::uint64_t{shape.size() + 8}) + shape + "[0,24]}}" + floats(6));
  CHECK(safetensors(right_file.path()).tensor<float>("w", 2, 3)(1, 2) == 5);
  refuses_tensors(shape + "[4,28]}}", floats(6), "outside the file");
  refuses_tensors(shape + "[24,0]}}", floats(6), "outside the file");
  refuses_tensors(shape + "[0,20]}}", floats(6), "size of its shape");
  refuses_tensors(shape + "[18446744073709551615,23]}}", floats(6), "outside the file");
  refuses_tensors(shape + "[0,18446744073709551615]}}", floats(6), "outside the file");
  refuses_tensors(shape + "[0,1e30]}}", floats(6), "no data_offsets");
  refuses_tensors(shape + "[0]}}", floats(6), "no data_offsets");
  refuses_tensors(shape + "\"all\"}}", floats(6), "no data_offsets");
  refuses_tensors(R"({"w":7})", floats(6), "no tensor w");
  refuses_tensors(R"({"w":{}})", floats(6), "not float32");
  refuses_tensors(R"({"w":{"dtype":["F32"]}})", floats(6), "not float32");
}

TEST_CASE("readers: vocabularies and pairs", "[models]") {
  {
    const file f("<s>\na\n\xd8\xa2\n");
    const vocabulary v(f.path());
    CHECK(v.size() == 4);
    CHECK(v.encode("a\xd8\xa2z\xff") == token_ids{1, 2, 3, 3});
    CHECK(v.decode({0, 1, 2, 3}) == "<s>a\xd8\xa2?");
    CHECK_THROWS_AS(v.decode({4}), std::out_of_range);
    CHECK_THROWS_AS(v.decode({-1}), std::out_of_range);
  }
  for (const char* bytes : {"", "a\nb"}) {
    const file f(bytes);
    CHECK_THROWS_WITH(vocabulary(f.path()), posenc_test::contains("line feed"));
  }
  {
    const file f("x\ty\t-1.5\nz\tw\t2");
    const std::vector<pair> pairs = read_pairs(f.path());
    REQUIRE(pairs.size() == 2);
    CHECK(pairs[0].source == "x");
    CHECK(pairs[0].target == "y");
    CHECK(pairs[0].log_probability == -1.5);
    CHECK(pairs[1].log_probability == 2);
  }
  for (const char* bytes : {"", "x\n", "x\ty\n", "x\ty\t\n", "x\ty\tz\n", "x\ty\t1z\n", "x\ty\t1\n\n"}) {
    CAPTURE(bytes);
    const file f(bytes);
    CHECK_THROWS_AS(read_pairs(f.path()), std::runtime_error);
  }
}

TEST_CASE("readers: a cache takes the rows of every text, up to its capacity", "[models]") {
  matrix<float> k(6, 4);
  for (Eigen::Index i = 0; i < k.size(); ++i) k.data()[i] = static_cast<float>(i);
  kv_cache<float> cache(1, 4, 2, 2, 2);
  CHECK_THROWS_AS(cache.append(0, as_texts(k, 2, 1), as_texts(k, 2, 1)), std::invalid_argument);
  CHECK_THROWS_AS(as_texts(k, 2, 4), std::invalid_argument);
  cache.append(0, as_texts(k, 2, 2), as_texts(k, 2, 2));
  cache.advance(3);
  // The second text begins behind the capacity of the first.
  const auto keys = cache.keys(0);
  CHECK(keys.extents() == posenc::shape{.batch = 2, .tokens = 3, .heads = 2, .dim = 2});
  CHECK(keys(0, 2, 1, 1) == 11);
  CHECK(keys(1, 0, 0, 0) == 12);
  CHECK(keys(1, 2, 1, 1) == 23);
  CHECK_THROWS_AS(cache.append(0, as_texts(k, 2, 2), as_texts(k, 2, 2)), std::length_error);
}
