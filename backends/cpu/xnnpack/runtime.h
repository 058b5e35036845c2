// XNNPACK, set up once: its kernel choice put right, its memory in our ledger.
//
// XNNPACK (Debian's of 2022 and of 2024) knows no Zen 2 and later and takes a 5x16 micro-kernel that
// gcc compiles with a spilled accumulator: a third of the speed of the 4x16s4 one it takes on Zen.
// Before it starts we tell cpuinfo that such processors are Zen. TIDEPOOL_XNNPACK_KEEP_UARCH=1 in the
// environment leaves the choice alone. As that reaches into another library, a small product is
// computed before anything else runs on XNNPACK; if it is wrong, nothing does.
//
// Memory XNNPACK asks for (packed weights, operator state) comes from a retained pool and counts
// as kExternal; the pool's unused part as kUnreferenced.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tidepool::cpu {

// True when XNNPACK runs here; the first call sets it up. Any thread.
bool XnnpackIsUsable();

// Whether its kernels are wider than ours on this processor: SSE, or those of other architectures, where ours are plain loops.
bool XnnpackIsWider();
// Whether ours are of AVX-512: as wide as any of its, with more rows in registers.
bool OursAreWidest();

// One line: the interface, what became of the kernel choice, why XNNPACK does not run if it does
// not. Sets XNNPACK up.
std::string XnnpackDescription();

// Multiplies small integers with `product` (x [6, 21], weights [37, 21], bias [37] -> z [6, 37]) and
// says whether the result is exact. What the check at the start does; here for its test.
bool MultipliesExactly(
    absl::FunctionRef<xnn_status(const float* x, const float* weights, const float* bias, float* z)>
        product);

// Throws kInternal or OutOfMemoryError naming `what` and XNNPACK's status.
void CheckXnnpack(xnn_status status, const char* what);

// While it lives this thread makes operators and may ask for memory: the Reclaimer, asked in turn, leaves them alone.
class TakingXnnpackMemory {
 public:
  TakingXnnpackMemory();
  ~TakingXnnpackMemory();
  TakingXnnpackMemory(const TakingXnnpackMemory&) = delete;
  TakingXnnpackMemory& operator=(const TakingXnnpackMemory&) = delete;

 private:
  const bool before_;
};
bool IsTakingXnnpackMemory();

// While it lives, memory that XNNPACK takes on this thread is counted, and small blocks that cannot be had come from a
// reserve: its planner of subgraphs (2022) writes to what it asked for without looking whether it got it. What was made then
// is not to be kept. One at a time a thread; blocks of the reserve must be released before it ends.
//
// Large blocks that are asked for until SharePacked() may be packed weights, and have pages that can be shared (shared_pages.h).
class XnnpackReserve {
 public:
  explicit XnnpackReserve(size_t bytes);  // throws std::bad_alloc
  ~XnnpackReserve();
  XnnpackReserve(const XnnpackReserve&) = delete;
  XnnpackReserve& operator=(const XnnpackReserve&) = delete;

  bool was_needed() const { return was_needed_; }
  int64_t taken_bytes() const {
    return taken_bytes_;
  }  // and not given back; what is shared does not count

  // Shares the large blocks with all that have the same bytes. `has_workspace`: but for the last block that was asked for, which
  // is where activations will be. Returns how many bytes. Throws OutOfMemoryError: what has them is to be deleted then.
  int64_t SharePacked(bool has_workspace);

  // For the allocator: null when there is no reserve, or not as much, or it does not give.
  static void* Take(size_t bytes, bool gives);
  static void Count(int64_t bytes);
  // Whether a block that is asked for now is to have pages, and that it has them.
  static bool WantsPages(size_t bytes);
  static void AddPages(std::byte* block);
  static void ForgetPages(std::byte* block);  // it is released
  // Of every block.
  static void NoteBlock(const void* block);

 private:
  std::unique_ptr<std::byte[]> block_;
  size_t left_ = 0;
  std::byte* next_ = nullptr;
  int64_t taken_bytes_ = 0;
  bool was_needed_ = false;
  bool is_packing_ = true;
  std::vector<std::byte*> pages_;
  const void* last_ = nullptr;
};

// A block of XNNPACK's memory, for what an operator is made from.
class XnnpackBlock {
 public:
  explicit XnnpackBlock(size_t bytes);
  ~XnnpackBlock();
  XnnpackBlock(const XnnpackBlock&) = delete;
  XnnpackBlock& operator=(const XnnpackBlock&) = delete;

  void* data() const { return data_; }      // null: there is none
  int64_t bytes() const { return bytes_; }  // as it is counted

 private:
  int64_t bytes_;  // before the allocation, then its
  void* const data_;
};

// Calls `drop`, which deletes operators, and gives back what nobody uses then: bytes. Nothing, and 0, while another thread
// allocates.
int64_t ReclaimXnnpackMemory(absl::FunctionRef<void()> drop);

// From now on the first `requests` of XNNPACK for memory are served as ever and all later ones refused; -1: none is.
void RefuseXnnpackMemoryForTesting(int64_t requests);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_
