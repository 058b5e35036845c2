#include "tidepool/memory/spill/spill_packer.h"

#include <lz4.h>

#include <algorithm>

#include "tidepool/memory/spill/spill_space.h"

namespace tidepool::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = SpillFile::kPageBytes;
// A sample is so many pieces, spread over the block: activations of one image are not those of the next.
constexpr size_t kPieces = 4;
constexpr size_t kPieceBytes = size_t{16} << 10;
// Unpacking takes about that share of packing, before one was measured.
constexpr double kUnpackingShare = 0.25;
// While the thread packs, the device may be faster than it is seen to be. So now and then some blocks go as they are.
constexpr int kMostPackedInTurn = 256;
constexpr int kRawInTurn = 8;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

void SpillDevicePace::Moved(size_t bytes) {
  bytes_ += static_cast<double>(bytes);
  if (bytes_ < kWindow) return;
  if (waited_ > worked_) {
    const double now = (waited_ + worked_) / bytes_;
    pace_ = pace_ == 0 ? now : (3 * pace_ + now) / 4;
  }
  waited_ = worked_ = bytes_ = 0;
}

bool PackingPays(const PackingEstimate& estimate, double device_seconds_per_byte) {
  return estimate.packing_seconds + estimate.unpacking_seconds <
         2 * estimate.saved_bytes * device_seconds_per_byte;
}

SpillPacker::SpillPacker(SpillCompression mode) : mode_(mode) {
  if (!packs()) return;
  state_ = std::make_unique<std::byte[]>(static_cast<size_t>(LZ4_sizeofState()));
  sample_ = std::make_unique<std::byte[]>(kPieceBytes);
}

size_t SpillPacker::Pack(const std::byte* from, size_t bytes, std::byte* to) {
  if (!packs() || bytes <= kPage) return 0;
  const size_t room = WholePages(bytes) - kPage;  // a page is saved, or nothing is done
  if (mode_ == SpillCompression::kAuto) {
    if (raw_in_turn_ > 0) {
      --raw_in_turn_;
      return 0;
    }
    if (pace_.seconds_per_byte() == 0) return 0;
    if (!PackingPays(Estimate(from, bytes), pace_.seconds_per_byte())) return 0;
    if (++packed_in_turn_ == kMostPackedInTurn) {
      packed_in_turn_ = 0;
      raw_in_turn_ = kRawInTurn;
    }
  }
  return PackAll(from, bytes, to, room);
}

size_t SpillPacker::PackAll(const std::byte* from, size_t bytes, std::byte* to, size_t room) {
  return static_cast<size_t>(
      std::max(0, LZ4_compress_fast_extState(state_.get(), reinterpret_cast<const char*>(from),
                                             reinterpret_cast<char*>(to), static_cast<int>(bytes),
                                             static_cast<int>(room), /*acceleration=*/1)));
}

// What a piece does not shrink to counts as not saved.
PackingEstimate SpillPacker::Estimate(const std::byte* from, size_t bytes) {
  const size_t piece = std::min(kPieceBytes, bytes / kPieces);
  size_t packed = 0;
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t at = (bytes - piece) / (kPieces - 1) * i;
    const size_t one = PackAll(from + at, piece, sample_.get(), piece);
    packed += one == 0 ? piece : one;
  }
  const double times = static_cast<double>(bytes) / static_cast<double>(piece * kPieces);
  const auto all = static_cast<double>(bytes);
  PackingEstimate estimate;
  estimate.packing_seconds = SecondsSince(begin) * times;
  estimate.unpacking_seconds =
      unpacking_ == 0 ? estimate.packing_seconds * kUnpackingShare : unpacking_ * all;
  estimate.saved_bytes = std::max(0.0, all - static_cast<double>(packed) * times);
  if (estimate.saved_bytes < static_cast<double>(kPage)) estimate.saved_bytes = 0;
  return estimate;
}

bool SpillPacker::Unpack(const std::byte* from, size_t packed, std::byte* to, size_t bytes) {
  const Clock::time_point begin = Clock::now();
  const int found =
      LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to),
                          static_cast<int>(packed), static_cast<int>(bytes));
  if (found < 0 || static_cast<size_t>(found) != bytes) return false;
  const double now = SecondsSince(begin) / static_cast<double>(bytes);
  unpacking_ = unpacking_ == 0 ? now : (7 * unpacking_ + now) / 8;
  return true;
}

}  // namespace tidepool::internal
