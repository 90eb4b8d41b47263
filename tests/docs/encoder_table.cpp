// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// encoder_table           prints the table of encoders that README.md shows, from their traits and descriptions.
// encoder_table README    compares it with what stands there between `<!-- encoder table -->` and
//                         `<!-- /encoder table -->`; exit code 1 and the right table where they differ.
#include <posenc/posenc.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The model that the numbers of the table belong to; its caption says so.
constexpr std::int64_t width = 512;
constexpr std::int64_t heads = 8;
constexpr std::int64_t head_dim = width / heads;
constexpr std::int64_t length = 512;

// `users` is the one thing that code can not say of itself.
template <class Encoder>
void print_row(std::ostream& out, const Encoder& encoder, std::string_view header, std::string_view users) {
  const posenc::encoder_traits t = Encoder::traits;
  const posenc::encoder_description d = encoder.describe();
  out << "| [" << t.name << "](docs/encoders/" << t.name << ".md) | " << to_string(t.site) << " | "
      << to_string(t.relation) << " | " << to_string(t.origin) << " | " << d.parameters << " | "
      << (d.position_limit ? std::to_string(*d.position_limit - 1) : "no limit") << " | " << to_string(d.shift) << " | "
      << users << " | `" << header << "` |\n";
}

void print_table(std::ostream& out) {
  using namespace posenc;
  out << "| encoder | where position enters | relation | values | parameters | longest position | cached keys after a "
         "shift "
         "| who uses it | header |\n|---|---|---|---|---|---|---|---|---|\n";
  print_row(out, sinusoidal<float>({.dim = width}), "encoders/sinusoidal.hpp",
            "the Transformer, Marian, M2M100, Whisper's encoder, MusicGen, MAE");
  print_row(out, learned<float>({.rows = length, .dim = width}, std::vector<float>(length * width)),
            "encoders/learned.hpp", "BERT, GPT-2, OPT, RoBERTa, ViT, Whisper's decoder");
  print_row(out, scaled_sinusoidal<float>({.dim = width}), "encoders/scaled_sinusoidal.hpp",
            "x-transformers, Transformer TTS, ESPnet");
  print_row(out, timestep<float>({.dim = width}), "encoders/timestep.hpp",
            "DDPM, Stable Diffusion, DiT; NCSN++ (Gaussian Fourier)");
  print_row(out, grid_sinusoidal<float>(grid_sinusoidal_options::mae(width)), "encoders/grid_sinusoidal.hpp",
            "MAE, MoCo v3, DiT, PixArt, Stable Diffusion 3, CogVideoX");
  print_row(out, grid_detr({.num_pos_feats = width / 2, .normalize = true}), "encoders/grid_detr.hpp",
            "DETR, Deformable DETR, MaskFormer");
  print_row(out, fourier_features({.num_bands = 64, .max_resolution = {224, 224}}), "encoders/fourier_features.hpp",
            "Perceiver, NeRF");
  print_row(out, segment<float>({.dim = width}, std::vector<float>(2 * width)), "encoders/segment.hpp",
            "BERT, ALBERT, ELECTRA, LayoutLM");
  // 16 x 32 positions.
  const std::vector<float> axial_0(16 * width / 2);
  const std::vector<float> axial_1(32 * width / 2);
  print_row(out, axial<float>({{16, width / 2, axial_0}, {32, width / 2, axial_1}}), "encoders/axial.hpp",
            "Reformer; DETR's learned encoding");
  print_row(out, tiled<float>({.rows = length, .dim = width, .length = 8 * length}, std::vector<float>(length * width)),
            "encoders/tiled.hpp", "Longformer, LED");
  print_row(out, hierarchical<float>({.rows = length, .dim = width}, std::vector<float>(length * width)),
            "encoders/hierarchical.hpp", "bert4keras");
  // A vocabulary of 1000 words, width / 2 complex channels: the caption must say so.
  const std::vector<float> words(1000 * width / 2);
  print_row(out, complex_order<float>({.vocabulary = 1000, .dim = width / 2}, {words, words, words}),
            "encoders/complex_order.hpp", "the models of its paper");
  // p(n + 1) = p(n) stands for the caller's function.
  print_row(out,
            recursive<double>(length, std::vector<double>(width),
                              [](std::int64_t, std::span<const double> p, std::span<double> next) {
                                std::copy(p.begin(), p.end(), next.begin());
                              }),
            "encoders/recursive.hpp", "FLOATER");
  print_row(out, position_convolution<float>({.channels = width}, std::vector<float>(width * 9)),
            "encoders/position_convolution.hpp", "CPVT, SegFormer, wav2vec 2.0, HuBERT, data2vec");
  print_row(out, relative_bucket<float>({.heads = heads}, std::vector<float>(32 * heads)),
            "encoders/relative_bucket.hpp", "T5, mT5, UMT5, FLAN-T5, MPNet, WavLM");
  print_row(out, toeplitz<float>(heads, length - 1, [](std::int64_t, std::int64_t) { return 0.0f; }),
            "encoders/toeplitz.hpp", "any bias that depends on distance alone");
  print_row(out, alibi<float>(heads), "encoders/alibi.hpp", "BLOOM, MPT, Falcon-RW, Baichuan-13B, JAIS, Jina-BERT");
  print_row(out, kerple<float>({.scale = std::vector<float>(heads, 1.0f), .shape = std::vector<float>(heads, 1.0f)}),
            "encoders/kerple.hpp", "the authors' fork of GPT-NeoX, NeMo");
  print_row(out, sandwich<float>({.heads = heads}), "encoders/sandwich.hpp", "NeMo");
  print_row(out,
            dynamic_bias<float>({.layers = {{std::vector<float>(width / 4), std::vector<float>(width / 4)},
                                            {std::vector<float>(heads * width / 4), std::vector<float>(heads)}}}),
            "encoders/dynamic_bias.hpp", "x-transformers");
  print_row(out,
            fire<float>({.weight1 = std::vector<float>(32),
                         .bias1 = std::vector<float>(32),
                         .weight2 = std::vector<float>(32 * heads),
                         .bias2 = std::vector<float>(heads)}),
            "encoders/fire.hpp", "the FIRE paper, models of arithmetic");
  print_row(out, alibi_two_sided<float>(std::vector<float>(heads), std::vector<float>(heads)),
            "encoders/alibi_asymmetric.hpp", "proposed for encoders");
  print_row(out, alibi_grid<float>(heads), "encoders/alibi_grid.hpp", "data2vec 2.0 for images");
  const auto zeros = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); };
  const auto table = zeros(31 * 31 * heads);
  print_row(out, window_bias<float>({.heads = heads, .window = {16, 16}}, table), "encoders/window_bias.hpp",
            "Swin, BEiT, data2vec-vision, LeViT, CoAtNet, MaxViT");
  const auto w1 = zeros(2 * 512), b1 = zeros(512), w2 = zeros(512 * heads);
  print_row(out, continuous_bias<float>({.heads = heads, .window = {16, 16}}, {w1, b1, w2}),
            "encoders/continuous_bias.hpp", "Swin v2");
  const auto axis = zeros(31 * head_dim);
  print_row(out, decomposed_bias<float>({.queries = {16, 16}, .keys = {16, 16}, .dim = head_dim}, axis, axis),
            "encoders/decomposed_bias.hpp", "SAM, ViTDet, MViTv2");
  const auto rows = zeros((length + 1) * width), one = zeros(width), square = zeros(width * width);
  print_row(out, tupe<float>({.heads = heads, .width = width}, {rows, one, one, square, one, square, one}),
            "encoders/tupe.hpp", "TUPE-A, TUPE-R");
  print_row(out, tupe_bucket<float>({.heads = heads}, zeros(33 * heads)), "encoders/tupe_bucket.hpp", "TUPE-R");
  const relative_bucket<float> wavlm({.heads = heads, .num_buckets = 320, .max_distance = 800}, zeros(320 * heads));
  const auto gates = zeros(length * heads);
  print_row(out, gated_bias(wavlm, view{gates.data(), {.tokens = length, .heads = heads, .dim = 1}}),
            "encoders/gated_bias.hpp", "WavLM");
  const forget_sums<float> sums({.heads = heads});
  print_row(out, forgetting<float>(sums), "encoders/forgetting.hpp", "the Forgetting Transformer, x-transformers");
  const projected_bank<float> bank(16, length, zeros(16 * length));
  const auto mixed = zeros(length * heads * 16);
  print_row(out, projected_bias(bank, view{mixed.data(), {.tokens = length, .heads = heads, .dim = 16}}),
            "encoders/projected_bias.hpp", "x-transformers");

  print_row(out, shaw<float>({.head_dim = head_dim}, zeros(33 * head_dim), zeros(33 * head_dim)), "encoders/shaw.hpp",
            "tensor2tensor, VITS, Wav2Vec2-BERT, Music Transformer");
  const auto vectors = zeros(heads * head_dim);
  print_row(out,
            transformer_xl<float>({.heads = heads, .head_dim = head_dim, .past = length - 1}, vectors, vectors,
                                  zeros(heads * head_dim * width)),
            "encoders/transformer_xl.hpp", "Transformer-XL, XLNet, Conformer, Funnel");
  print_row(out,
            relative_segments<float>({.heads = heads, .head_dim = head_dim}, zeros(2 * width), vectors, {}, {}, {}),
            "encoders/relative_segments.hpp", "XLNet");
  const auto disentangled = zeros(heads * 512 * head_dim);
  print_row(out, deberta<float>({.heads = heads, .head_dim = head_dim}, disentangled, disentangled),
            "encoders/deberta.hpp", "DeBERTa v1, v2, v3, SEW-D");
  print_row(out, cope<float>({.head_dim = head_dim}, zeros(64 * head_dim)), "encoders/cope.hpp",
            "facebookresearch/RAM, x-transformers");
  print_row(out, rope<float>({.head_dim = head_dim}), "encoders/rope.hpp",
            "Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX, GPT-J, GLM, Cohere, DeepSeek");
  print_row(out, xpos<float>({.head_dim = head_dim}), "encoders/xpos.hpp", "torchscale's models");
  print_row(out, nope{}, "encoders/nope.hpp",
            "every fourth layer of Llama 4 and SmolLM3; Cohere 2's full-attention layers");
  print_row(out, irope<float>({.layers = 4, .rope = {.head_dim = head_dim}}), "attention/irope.hpp", "Llama 4");
}

// What stands between the two marks, or nothing where they are missing.
std::string region(const std::string& text) {
  const std::string begin = "<!-- encoder table -->\n";
  const std::string end = "<!-- /encoder table -->";
  const std::size_t from = text.find(begin);
  if (from == std::string::npos) return {};
  const std::size_t to = text.find(end, from);
  if (to == std::string::npos) return {};
  return text.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::ostringstream table;
  print_table(table);
  if (argc < 2) {
    std::cout << table.str();
    return 0;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  if (region(text.str()) == table.str()) {
    std::cout << "the table in " << argv[1] << " is up to date\n";
    return 0;
  }
  std::cout << argv[1] << ": the table of encoders must read\n" << table.str();
  return 1;
}
