#include "tidepool/nn/testing/file_mutators.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {

static size_t HeaderBytes(const std::string& bytes) {
  uint64_t length = 0;
  if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
  return static_cast<size_t>(
      std::min<uint64_t>(length, bytes.size() - std::min<size_t>(bytes.size(), sizeof(length))));
}

void MutateJson(ByteMutator& mutator, std::string& text) {
  const std::string words[] = {"flatten",
                               "permute",
                               "lstm",
                               "global_pooling",
                               "upsampling2d",
                               "l2_normalization",
                               "last_time_step",
                               "merge",
                               "scaling",
                               "zero_padding",
                               "cropping",
                               "reshape",
                               "dense",
                               "conv2d",
                               "max_pool2d",
                               "batch_norm",
                               "group_norm",
                               "activation",
                               "relu",
                               "tanh",
                               "inputs",
                               "outputs",
                               "name",
                               "kind",
                               "tied",
                               "units",
                               "kernel",
                               "f32",
                               "i64",
                               "0.dense",
                               "1.dense",
                               "x",
                               "null",
                               "true",
                               "[]",
                               "{}",
                               "-1",
                               "1e400",
                               "1048576",
                               "4294967296",
                               "0.5",
                               "\\n",
                               "\\ud800"};
  if (text.empty() || mutator.Below(4) == 0) return mutator.Mutate(text);
  std::vector<size_t> begins;
  const auto is_word = [&](size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_';
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_word(i) && (i == 0 || !is_word(i - 1))) begins.push_back(i);
  }
  if (begins.empty()) return mutator.Mutate(text);
  const size_t begin = begins[mutator.Below(begins.size())];
  size_t end = begin;
  while (end < text.size() && is_word(end)) ++end;
  std::string other = mutator.Below(3) == 0 ? absl::StrCat(mutator.Number(1 << 20))
                                            : words[mutator.Below(std::size(words))];
  // Mostly what may stand there: a small number for a number, another word of this text for a word.
  if (mutator.Below(4) != 0) {
    if (std::isdigit(static_cast<unsigned char>(text[begin])) != 0) {
      other = absl::StrCat(mutator.Below(10));
    } else if (mutator.Below(2) == 0) {
      const size_t from = begins[mutator.Below(begins.size())];
      size_t to = from;
      while (to < text.size() && is_word(to)) ++to;
      other = text.substr(from, to - from);
    }
  }
  text.replace(begin, end - begin, other);
}

void MutateHeader(ByteMutator& mutator, std::string& bytes) {
  if (bytes.size() < 8 || mutator.Below(16) == 0) return mutator.Mutate(bytes);
  const size_t before = HeaderBytes(bytes);
  std::string header = bytes.substr(8, before);
  MutateJson(mutator, header);
  const uint64_t length = header.size();
  bytes = std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header +
          bytes.substr(8 + before);
}

}  // namespace tidepool::nn
