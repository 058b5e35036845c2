// What a gradient tape keeps waits in a spill file between the forward and the backward pass.
//
//   GradientTape tape;
//   SpilledTape spilled(tape, &file);
//   tape.set_listener(...);                       // which calls spilled.PartIsNext(part)
//   for (int part = 1; part <= parts; ++part) {
//     tape.set_part(part);
//     x = layers[part - 1](x);
//     spilled.EndPart(part, /*spills=*/true);
//   }
//   spilled.EndForward();
//   tape.Backward(loss);
//   spilled.Clear();
//
// An array that a part is the first to keep is written beside the parts behind it and let go of once it is written and nobody but
// the tape has it; it is read beside the gradients of the part before the last that keeps it. When memory is taken and given
// back hangs on parts alone, never on how fast the file is: steps that repeat are the same requests in the same order, which a
// workspace plans to the byte. What others have as well (parameters, inputs) or may write to stays.
//
// Arrays of the host wait in a file. Those of a device wait in page-locked memory of the host (HostBlocks), and are copied beside its kernels: the
// host waits for no copy. While a step is captured (ndarray/capture) that is kFailedPrecondition. Ownership: the file and the blocks outlive it, and it the backward pass. Errors: those of SpillFile, from each call and from
// Backward(); what was not written is in memory still. Threads: the tape's.
#ifndef TIDEPOOL_NDARRAY_SPILL_SPILLED_TAPE_H_
#define TIDEPOOL_NDARRAY_SPILL_SPILLED_TAPE_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/host_blocks.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct SpilledTapeOptions {
  int behind = 1;  // so many parts later a write must be done; at least 1
  int ahead = 1;   // so many parts earlier a read begins; at least 0
};

struct SpilledTapeStats {
  int64_t arrays = 0, bytes = 0;  // that were let go of, one way
  double stall_seconds = 0;       // that the caller waited for the file
};

class SpilledTape final : public KeptArrayStore {
 public:
  // Arrays of the host wait in `file`, and those of devices in `blocks`, which outlive it; null: they stay in memory. In a dry run
  // (KernelsOffScope) it takes and gives back the same memory and moves no bytes.
  SpilledTape(GradientTape& tape, SpillFile* file, SpilledTapeOptions options = {},
              HostBlocks* blocks = nullptr);
  ~SpilledTape() = default;
  SpilledTape(const SpilledTape&) = delete;
  SpilledTape& operator=(const SpilledTape&) = delete;

  // The caller has it for longer than the forward pass, so that to write it would gain nothing. Before it is recorded.
  void Stays(const NDArray& array);
  // What was recorded since the call before is all of `part`, which is larger than those before. `spills`: what it is the first
  // to keep is to wait.
  void EndPart(int part, bool spills);
  void EndForward();
  // Of the backward pass, as GradientListener has it.
  void PartIsNext(int part);
  // All arrays go; transfers that are under way are given up.
  void Clear();

  const SpilledTapeStats& stats() const { return stats_; }

  BufferHandle Bring(uint64_t buffer_id) override;
  void Drop(uint64_t buffer_id) override;

 private:
  enum class State : uint8_t { kStays, kWriting, kAway, kReading };
  struct Item {
    BufferHandle buffer;  // while it is written, and while it is read
    SpilledBytes kept;
    SpillTransfer transfer;        // goes before what it reads and writes
    std::optional<HostWait> wait;  // of a device, in place of both
    Device device = Host();
    uint64_t buffer_id = 0;
    size_t bytes = 0;
    uint32_t version = 0;
    int first_part = 0, last_part = 0;
    State state = State::kWriting;
  };
  void LetGo(Item& item);
  void BeginRead(Item& item);
  template <typename Call>
  auto Stalled(const Call& call);

  GradientTape& tape_;
  bool Spills(const Buffer& buffer) const;

  SpillFile* const file_;
  HostBlocks* const blocks_;
  const bool moves_;  // else it is a dry run
  const SpilledTapeOptions options_;
  SpilledTapeStats stats_;
  std::vector<Item> items_;
  static constexpr size_t kStaysAlways = SIZE_MAX;
  std::unordered_map<uint64_t, size_t> numbers_;  // of items, by id of the buffer
  std::vector<size_t> writing_;                   // those, the first ones first
  std::vector<size_t> away_;  // by last part, the last ones last; after EndForward()
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_SPILLED_TAPE_H_
