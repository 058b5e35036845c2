// SpillPacker: whether and how a block becomes smaller on its way to a spill file.
//
// By LZ4, which finds repeated bytes: zeros of rectified activations and of masks, indices, texts. Numbers that are not
// alike do not shrink, and what does not save a page is kept as it is. With kAuto a block is packed where that gains time:
// where a sample of its own bytes says that packing and unpacking take less than what the device would need longer
// for the bytes that are saved, one way and back. How fast the device is, is measured while it is what others wait
// for; a thread that never waits for it gains nothing by moving less.
//
// Threads: one at a time (that of the file). Memory: LZ4's 16 KiB, and as much as a sample. Cost: of a sample, about a 64th of packing.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_PACKER_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_PACKER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/memory/spill/spill_file.h"

namespace tidepool::internal {

// Seconds that the device takes for a byte, as seen by the thread that hands blocks in and takes them back.
class SpillDevicePace {
 public:
  // The thread has waited for the device, with blocks under way; or worked meanwhile.
  void Waited(double seconds) { waited_ += seconds; }
  void Worked(double seconds) { worked_ += seconds; }
  // A block is done. Each kWindow bytes the time since the last ones is a measurement, if most of it was waiting: then the
  // device was the slower one of the two.
  void Moved(size_t bytes);
  // 0: not known, as the device was never what others waited for.
  double seconds_per_byte() const { return pace_; }

 private:
  static constexpr double kWindow = 1 << 20;
  double waited_ = 0, worked_ = 0, bytes_ = 0, pace_ = 0;
};

// What packing a block would take, from a sample of it.
struct PackingEstimate {
  double saved_bytes = 0;
  double packing_seconds = 0, unpacking_seconds = 0;
};
// Of one way and back.
bool PackingPays(const PackingEstimate& estimate, double device_seconds_per_byte);

class SpillPacker {
 public:
  // Throws std::bad_alloc.
  explicit SpillPacker(SpillCompression mode);

  bool packs() const { return mode_ != SpillCompression::kNone; }
  // Writes `bytes` at `from` to `to`, which has room for them, in fewer. Returns how many: 0: it was not done, and `to` has anything.
  size_t Pack(const std::byte* from, size_t bytes, std::byte* to);
  // False: `from` is not `packed` bytes that Pack() has made of `bytes`; `to` has anything then.
  bool Unpack(const std::byte* from, size_t packed, std::byte* to, size_t bytes);

  SpillDevicePace& pace() { return pace_; }

 private:
  PackingEstimate Estimate(const std::byte* from, size_t bytes);
  size_t PackAll(const std::byte* from, size_t bytes, std::byte* to, size_t room);

  const SpillCompression mode_;
  SpillDevicePace pace_;
  double unpacking_ = 0;  // seconds a byte; 0: nothing was unpacked yet
  int raw_in_turn_ = 0;   // blocks that are kept as they are, for a measurement of the device
  int packed_in_turn_ = 0;
  std::unique_ptr<std::byte[]> state_;   // LZ4's
  std::unique_ptr<std::byte[]> sample_;  // packed
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_PACKER_H_
