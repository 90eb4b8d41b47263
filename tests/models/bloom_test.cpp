// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A trained ALiBi model, end to end: examples/models/bloom_gpl3_char. Expected numbers come from a separate
// implementation in float64. The wrong encodings show that these tests can fail.

#include "support/catch.hpp"
#include "support/char_model.hpp"
#include "support/expected.hpp"
#include "support/held_out.hpp"
#include "support/tolerance.hpp"

#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <filesystem>

using namespace posenc_examples;

namespace {

const std::string folder = POSENC_TESTS_DIR "/../examples/models/bloom_gpl3_char/";

template <class T>
const char_model<T>& model() {
  static const char_model<T> m{safetensors(folder + "model.safetensors")};
  return m;
}
const expected& values() {
  static const expected e(folder + "expected.json");
  return e;
}

/// In double everything runs on one policy type: the masks are its fields.
encoding<posenc::run_time_policy<posenc::alibi<double>>> with_bias(posenc::alibi<double> bias) {
  return {.policy = {.bias = std::move(bias), .masks = {.causal = true}}};
}
auto right() { return with_bias(posenc::alibi<double>(6)); }
auto right_float() { return encoding{posenc::compose(posenc::alibi<float>(6), posenc::causal{})}; }

}  // namespace

TEST_CASE("bloom: slopes are those of the model", "[models][alibi]") {
  CHECK(posenc::alibi<double>(6).slopes() == values().numbers("slopes"));
}

TEST_CASE("bloom: logits of the prompt equal the float64 reference", "[models][alibi]") {
  const token_ids ids = values().ids("logits1_ids");
  const matrix<double> wanted = values().values("logits1");
  CHECK(largest_difference(model<double>().run(ids, right()), wanted) < 1e-9);
  const matrix<float> in_float = model<float>().run(ids, right_float());
  CHECK(largest_difference(in_float, wanted) < 2e-4);
  // A float32 program on the same input; both are a few roundings from the truth.
  CHECK(largest_difference(in_float, values().values("logits1_f32")) < 2e-4);
}

TEST_CASE("bloom: scores of the last query, bias included", "[models][alibi]") {
  const token_ids ids = values().ids("logits1_ids");
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const auto& m = model<double>();
  const matrix<double> qkv = m.project(m.embed(ids, posenc::nope{}, {}), 0);
  const posenc::shape one_row{.batch = 1, .tokens = 1, .heads = 6, .dim = tokens};
  std::vector<double> scores(static_cast<std::size_t>(6 * tokens));
  std::vector<double> out(72);
  const posenc::view<const double> all = m.part(qkv, 0);
  const posenc::view<const double> last(all.row(0, tokens - 1, 0), {.batch = 1, .tokens = 1, .heads = 6, .dim = 12},
                                        all.steps());
  const std::vector<double> wanted = values().numbers("score_row1");
  const std::vector<double> slopes = values().numbers("slopes");
  for (const auto form : {posenc::alibi_form::key_only, posenc::alibi_form::causal, posenc::alibi_form::symmetric}) {
    posenc::attention_reference(
        last, m.part(qkv, 1), m.part(qkv, 2),
        posenc::view(out.data(), {.batch = 1, .tokens = 1, .heads = 6, .dim = 12}),
        posenc::compose(posenc::alibi<double>({.heads = 6, .form = form}), posenc::causal{}),
        {.query_positions = posenc::positions::from(tokens - 1), .logits = posenc::view(scores.data(), one_row)});
    // BLOOM's own form adds m j; the other two are m (tokens - 1) lower.
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double slope = slopes[i / static_cast<std::size_t>(tokens)];
      const double lower = form == posenc::alibi_form::key_only ? 0.0 : slope * static_cast<double>(tokens - 1);
      CHECK(std::abs(scores[i] + lower - wanted[i]) < 1e-9);
    }
  }
}

TEST_CASE("bloom: the greedy continuation is exact", "[models][alibi]") {
  std::string wanted;
  for (const std::int64_t id : values().ids("greedy1_ids")) wanted.push_back(static_cast<char>(id));
  CHECK(wanted == "This License and to a convered work and the work any and that the contrib");
  CHECK(continue_text(model<double>(), right(), "This License ", 60) == wanted);
  CHECK(continue_text(model<float>(), right_float(), "This License ", 60) == wanted);
}

TEST_CASE("bloom: the loss of a text equals the float64 reference", "[models][alibi]") {
  const token_ids ids = values().ids("text1_ids");
  CHECK(std::abs(mean_loss(model<double>().run(ids, right()), ids) - values().number("text1_nll")) < 1e-9);
  CHECK(std::abs(mean_loss(model<float>().run(ids, right_float()), ids) - values().number("text1_nll")) < 2e-4);
}

TEST_CASE("bloom: left padding changes nothing when positions come from the mask", "[models][alibi]") {
  const token_ids ids = values().ids("pad1_ids");
  const token_ids valid = values().ids("pad1_valid");
  const auto at = posenc::masked_ids<std::int64_t>(valid);
  const std::vector<std::int64_t> begin{3};
  // BLOOM's own form shows a wrong position most clearly, since it does not cancel.
  for (const auto form : {posenc::alibi_form::symmetric, posenc::alibi_form::key_only}) {
    auto padded = with_bias(posenc::alibi<double>({.heads = 6, .form = form}));
    padded.policy.masks.padding = posenc::padding{.begin = begin, .end = {}};
    auto cache = model<double>().make_cache(16);
    const auto where = posenc::positions::listed(at);
    const matrix<double> logits = model<double>().run(ids, padded, cache, where, where);
    CHECK(largest_difference(logits.bottomRows(13), values().values("pad1_logits")) < 1e-9);
    CHECK(largest_difference(logits.bottomRows(13), values().values("logits1")) < 1e-9);
  }
  // Padding that is not masked is seen.
  auto cache = model<double>().make_cache(16);
  const auto where = posenc::positions::listed(at);
  const matrix<double> seen = model<double>().run(ids, right(), cache, where, where);
  CHECK(largest_difference(seen.bottomRows(13), values().values("logits1")) > 0.1);
}

TEST_CASE("bloom: texts of a batch with other paddings say what they say alone", "[models][alibi]") {
  // Two texts of 13 and 8 characters, padded in front.
  const auto& m = model<double>();
  const token_ids text = values().ids("logits1_ids");
  const std::vector<std::int64_t> begin{0, 5};
  token_ids ids = text;
  ids.resize(18, 0);
  ids.insert(ids.end(), text.begin() + 5, text.end());
  token_ids real(26, 1);
  std::fill_n(real.begin() + 13, 5, 0);
  const token_ids counted = posenc::masked_ids<std::int64_t>(real, 2);
  const auto at = posenc::positions::listed(counted, 2);
  auto padded = with_bias(posenc::alibi<double>({.heads = 6, .form = posenc::alibi_form::key_only}));
  padded.policy.masks.padding = posenc::padding{.begin = begin, .end = {}};
  auto cache = m.make_cache(13, 2);
  const matrix<double> logits = m.run(ids, padded, cache, at, at);
  CHECK(largest_difference(logits.topRows(13), values().values("logits1")) < 1e-9);
  CHECK(largest_difference(logits.bottomRows(8), m.run(std::span(text).subspan(5), right())) < 1e-12);
}

TEST_CASE("bloom: one character at a time equals the whole text at once", "[models][alibi]") {
  const token_ids ids = values().ids("text1_ids");
  const auto check = [&](const auto& m, const auto& e, double bound) {
    const auto whole = m.run(ids, e);
    auto cache = m.make_cache(static_cast<std::int64_t>(ids.size()));
    posenc_test::worst worst;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const auto step = m.run(std::span(ids).subspan(t, 1), e, cache);
      const double d = largest_difference(step.row(0), whole.row(static_cast<Eigen::Index>(t)));
      worst.see(d, static_cast<long double>(t));
    }
    INFO(worst);
    CHECK(worst.error < bound);
  };
  check(model<double>(), right(), 1e-12);
  check(model<float>(), right_float(), 2e-5);
}

TEST_CASE("bloom: shifting every position changes nothing", "[models][alibi]") {
  const token_ids ids = values().ids("text1_ids");
  const auto at = posenc::positions::from(100);
  auto cache = model<double>().make_cache(static_cast<std::int64_t>(ids.size()));
  CHECK(largest_difference(model<double>().run(ids, right(), cache, at, at), model<double>().run(ids, right())) <
        1e-12);
}

TEST_CASE("bloom: wrong encodings give the losses that they should", "[models][alibi]") {
  const token_ids ids = values().ids("text1_ids");
  const auto& m = model<double>();
  const matrix<double> logits = m.run(ids, right());
  const std::vector<double> slopes = values().numbers("slopes");
  const auto times = [&](double factor) {
    std::vector<double> scaled = slopes;
    for (double& s : scaled) s *= factor;
    return posenc::alibi<double>(scaled);
  };
  const auto check = [&](const char* name, const posenc::alibi<double>& bias, double loss, double differs_by) {
    INFO(name);
    const matrix<double> wrong = m.run(ids, with_bias(bias));
    CHECK(std::abs(mean_loss(wrong, ids) - loss) < 1e-6);
    // Differences are given to three digits.
    CHECK(largest_difference(logits, wrong) == Approx(differs_by).epsilon(6e-3));
  };
  check("plain geometric slopes", posenc::alibi<double>({.heads = 6, .rule = posenc::slope_rule::geometric}), 3.684626,
        14.1);
  check("right slopes, sorted", posenc::alibi<double>({1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 64, 1. / 256}), 3.688505,
        13.8);
  check("the two extra heads first", posenc::alibi<double>({1. / 2, 1. / 8, 1. / 4, 1. / 16, 1. / 64, 1. / 256}),
        3.701448, 13.8);
  check("exponent off by one", posenc::alibi<double>({1, 1. / 4, 1. / 16, 1. / 64, 1, 1. / 4}), 1.949944, 9.89);
  check("sign turned", times(-1), 4.724056, 11.8);
  check("no bias", times(0), 3.950783, 13.2);
  check("bias also divided by sqrt(12)", times(1 / std::sqrt(12.0)), 2.928447, 13.8);

  const matrix<double> own_form =
      m.run(ids, with_bias(posenc::alibi<double>({.heads = 6, .form = posenc::alibi_form::key_only})));
  CHECK(largest_difference(logits, own_form) < 1e-11);
}

TEST_CASE("bloom: held-out losses with every encoding in place of its own", "[models][held_out]") {
  const std::string path = "/usr/share/common-licenses/GPL-3";
  if (!std::filesystem::exists(path)) POSENC_SKIP(path + " is absent");
  const std::string text = read_file(path);
  // The text that the numbers were made with: its size, and the stretch that the model folder quotes from it.
  if (text.size() != 35149 || character_ids(text.substr(2000, 384)) != values().ids("text1_ids"))
    POSENC_SKIP(path + " is another edition of the text");
  const std::string_view held_out = last_tenth(text);
  REQUIRE(text.size() - held_out.size() == 31634);

  const auto check = [&](const char* name, const auto& e, std::array<double, 4> wanted) {
    INFO(name);
    const std::array<std::int64_t, 4> lengths{96, 192, 384, 768};
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      INFO("length " << lengths[i]);
      const std::optional<double> loss = held_out_loss(model<float>(), e, held_out, lengths[i]);
      REQUIRE(loss);
      CHECK(std::abs(*loss - wanted[i]) < 5e-4);
    }
  };
  const auto rotated = [](posenc::rope_layout layout) {
    return encoding{posenc::compose(posenc::rope<float>({.head_dim = 12, .layout = layout}), posenc::causal{})};
  };
  const posenc::sinusoidal<float> sines({.dim = 72});
  const auto bare = posenc::compose(posenc::causal{});
  const auto own = right_float();
  check("own ALiBi", own, {2.5370, 2.1568, 2.0809, 2.0723});
  check("none", encoding{bare}, {2.9918, 3.5866, 3.9130, 4.3573});
  check("RoPE, half pairing", rotated(posenc::half_split), {3.4605, 4.0052, 4.2857, 4.7812});
  check("RoPE, interleaved", rotated(posenc::interleaved), {2.9878, 3.5106, 3.8958, 4.4853});
  check("sinusoidal", encoding{bare, sines}, {3.3856, 3.7140, 3.9986, 4.5244});
  check("ALiBi and sinusoidal", encoding{own.policy, sines}, {2.8538, 2.8721, 2.9048, 3.0908});
  check("geometric slopes",
        encoding{posenc::compose(posenc::alibi<float>({.heads = 6, .rule = posenc::slope_rule::geometric}),
                                 posenc::causal{})},
        {3.1141, 3.5088, 3.6908, 3.9575});
  CHECK_FALSE(held_out_loss(model<float>(), own, held_out, 1000));
}

TEST_CASE("bloom: damaged model files are refused in one line", "[models]") {
  const std::string path = (std::filesystem::temp_directory_path() / "posenc_damaged.safetensors").string();
  const std::string whole = read_file(folder + "model.safetensors");
  const auto refuses = [&](const std::string& bytes, const char* words) {
    std::ofstream(path, std::ios::binary) << bytes;
    CHECK_THROWS_WITH(char_model<float>(safetensors(path)), posenc_test::contains(words));
  };
  const auto with_header = [](const std::string& json) {
    const std::uint64_t n = json.size();
    return std::string(reinterpret_cast<const char*>(&n), 8) + json;
  };
  const std::string name = "{\"transformer.word_embeddings.weight\":";
  refuses("", "ends early");
  refuses(whole.substr(0, 100), "ends early");
  refuses(std::string(8, '\xff') + "{}", "ends early");
  refuses(with_header("[]"), "not a JSON object");
  refuses(with_header("{"), "not a JSON object");
  refuses(with_header("{}"), "no tensor transformer.word_embeddings.weight");
  refuses(with_header(name + "{\"dtype\":\"F16\",\"shape\":[128,72],\"data_offsets\":[0,36864]}}"), "not float32");
  refuses(with_header(name + "{\"dtype\":\"F32\",\"shape\":[72,128],\"data_offsets\":[0,36864]}}"), "[128,72]");
  refuses(with_header(name + "{\"dtype\":\"F32\",\"shape\":[128,72],\"data_offsets\":[-4,36860]}}"), "data_offsets");
  refuses(with_header(name + "{\"dtype\":\"F32\",\"shape\":[128,72],\"data_offsets\":[0,36864]}}"), "outside the file");
  refuses(with_header(name + "{\"dtype\":\"F32\",\"shape\":[128,72],\"data_offsets\":[0,0]}}"), "size of its shape");
  refuses(whole.substr(0, whole.size() - 4), "outside the file");
  std::filesystem::remove(path);
}
