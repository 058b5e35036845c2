// PNG files.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/testing/png_files.h"

namespace tidepool {
namespace {

// Some thousand bytes that stand for megabytes; made once, before anybody counts.
const std::string& Bomb(absl::string_view type) {
  static const std::string content = Deflated(std::string(2'000'000, 'b'));
  static const std::string text = PngChunk("zTXt", std::string("k\0\0", 3) + content);
  static const std::string international =
      PngChunk("iTXt", std::string("k\0\1\0\0\0", 6) + content);
  static const std::string profile = PngChunk("iCCP", std::string("k\0\0", 3) + content);
  return type == "zTXt" ? text : type == "iTXt" ? international : profile;
}

std::vector<std::string> Pngs() {
  const std::string palette = PngChunk("PLTE", std::string("\0\0\0\377\0\0\0\377\0\0\0\377", 12));
  return {Png(8, 0, 4),
          Png(1, 0, 1),
          Png(16, 0, 8, PngChunk("gAMA", BigEndian(45455))),
          Png(8, 2, 12, PngChunk("sRGB", std::string(1, '\0'))),
          Png(2, 3, 1, palette + PngChunk("tRNS", std::string("\0\200", 2))),
          Png(8, 4, 8, PngChunk("tEXt", std::string("k\0text", 6))),
          Png(16, 6, 32),
          Png(8, 0, 4, "", 1),
          Png(8, 0, 4, Bomb("zTXt")),
          Png(8, 0, 4, Bomb("iTXt") + Bomb("iCCP")),
          "\x89PNG\r\n\x1a\n" + Header(0x7FFFFFFF, 8, 0, 0) + PngChunk("IDAT", Deflated("x"))};
}

// Where each whole chunk begins, and where they end.
std::vector<size_t> ChunksOf(const std::string& png) {
  std::vector<size_t> begins;
  size_t at = 8;
  while (at + 12 <= png.size()) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(png[at + i]);
    if (length > png.size() - at - 12) break;
    begins.push_back(at);
    at += length + size_t{12};
  }
  begins.push_back(std::min(at, png.size()));
  return begins;
}

// A chunk: its length, type, data, place, or one more of them.
void MutatePng(ByteMutator& mutator, std::string& bytes) {
  const std::vector<size_t> chunks = ChunksOf(bytes);
  if (chunks.size() < 2) return mutator.Mutate(bytes);
  const size_t chosen = mutator.Below(chunks.size() - 1);
  const size_t begin = chunks[chosen], size = chunks[chosen + 1] - begin;
  const std::string chunk = bytes.substr(begin, size);
  static constexpr const char* kTypes[] = {"IHDR", "PLTE", "IDAT", "IEND", "tRNS",
                                           "gAMA", "zTXt", "iCCP", "ABCD", "acTL"};
  switch (mutator.Below(8)) {
    case 0:
      bytes.replace(begin, 4, BigEndian(static_cast<uint32_t>(mutator.Number(size - 12))));
      return;
    case 1:
      bytes.replace(begin + 4, 4, kTypes[mutator.Below(std::size(kTypes))]);
      return;
    case 2:
      bytes.erase(begin, size);
      return;
    case 3:
      bytes.insert(chunks[mutator.Below(chunks.size())], chunk);
      return;
    case 4:
      bytes.insert(begin, Bomb(mutator.Below(2) == 0 ? "zTXt" : "iTXt"));
      return;
    case 5:  // other pixels
      bytes.replace(begin, size, PngChunk("IDAT", Deflated(std::string(mutator.Below(200), '\1'))));
      return;
    case 6:
      if (size > 12) bytes[begin + 8 + mutator.Below(size - 12)] ^= 1 << mutator.Below(8);
      return;
    default:
      mutator.Mutate(bytes);
  }
}

void RepairSums(std::string& bytes) {
  const std::vector<size_t> chunks = ChunksOf(bytes);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    const size_t sum = chunks[i + 1] - 4;
    const absl::string_view summed(bytes.data() + chunks[i] + 4, sum - chunks[i] - 4);
    bytes.replace(sum, 4, BigEndian(SumOf(summed)));
  }
}

void ReadPng(const std::string& bytes) {
  if (!LooksLikePng(bytes)) ThrowInvalidArgument("no PNG");
  const GreyImage pixels = DecodePng(bytes, kPngSide, kPngSide);
  ASSERT_EQ(pixels.size(), size_t{kPngSide * kPngSide});
  // What is not needed changes nothing.
  std::string more = bytes;
  more.insert(ChunksOf(bytes)[1], Bomb("zTXt"));
  EXPECT_EQ(DecodePng(more, kPngSide, kPngSide), pixels);
}

TIDEPOOL_FUZZ_TARGET(
    Png,
    {.corpus = &Pngs, .mutate = &MutatePng, .repair = &RepairSums, .run = &ReadPng, .cases = 6000});

}  // namespace
}  // namespace tidepool
