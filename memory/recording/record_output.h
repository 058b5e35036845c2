// A record while it is written: the file, and a block in the making for each thread.
//
// Made for the inside of malloc: it takes no memory from there and throws nothing. One record at a
// time in a process. Events go into 64 KiB of their thread, mapped at its first one, and to the file
// when these are full, when the thread ends, and in the end; so a process that is killed loses less
// than that of each thread. Whole blocks are written, by one system call each.
//
// The file is locked (flock) while it is written: one that another process writes is left alone, and
// this one's record is FILE.<process>; so is that of a child that fork() makes, from its first event
// on. An error of the system ends the record where it is.
//
// What it does behind its lock it does with all signals blocked and the thread's cancellation disabled:
// no handler that ends the program or asks for memory finds the lock held by its own thread, and malloc
// does not become a place where threads are cancelled.
//
// Threads: any. Cost of an event: an atomic increment that all threads share, a clock that is
// read without a system call, some ten bytes.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_OUTPUT_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_OUTPUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tidepool/memory/recording/record_file.h"
#include "tidepool/memory/recording/record_format.h"

namespace tidepool::record {

class Output {
 public:
  // The process's.
  static Output& Global() noexcept;

  // Begins a record at `path`, which is emptied; 0 or an errno: EBUSY where one is being written
  // here, ENOTSUP where `path` is no regular file. Events are written from the return on.
  int Open(const char* path, Source source) noexcept;
  // Writes what all threads have, and the end. What they do meanwhile may be missing.
  void Close() noexcept;
  bool is_open() const noexcept { return session_.load(std::memory_order_relaxed) % 2 == 1; }
  // Whether events are written from here on. In a child of fork() this begins its record.
  bool Begin() noexcept {
    return is_open() ||
           (opens_at_event_.load(std::memory_order_relaxed) && HereSlowly() != nullptr);
  }
  // False in a child of vfork(), which has the memory of its parent.
  bool is_of_this_process() const noexcept;
  // Where the record is: `path` or FILE.<process>. While it is open.
  const char* path() const noexcept { return path_; }

  // Each event has a number of its own: what happens behind another thread's event has a larger one,
  // if it is told behind the allocation and before the release.
  void Allocated(uint64_t key, uint64_t bytes, unsigned alignment_log2,
                 const Context& context) noexcept;
  void Freed(uint64_t key) noexcept;
  void Cycle(bool begins, uint32_t name, uint64_t generation) noexcept;
  // Was there before; to be told before any event of this record. Key 0: several together.
  void WasLive(uint64_t key, uint64_t bytes, unsigned alignment_log2,
               const Context& context) noexcept;
  // Number `id`, from 1 to below kMostNames, has a text in this record; it has to before an event has
  // the number.
  bool HasName(uint32_t id) const noexcept {
    return (names_[id / 64].load(std::memory_order_acquire) >> (id % 64) & 1) != 0;
  }
  // The first one of a number holds. Cut at kMostNameBytes.
  void Name(uint32_t id, const char* text, size_t length) noexcept;

 private:
  static constexpr size_t kBlockBytes = size_t{64} << 10;
  struct ThreadBlock;

  constexpr Output() = default;
  uint32_t Known(uint32_t name) const noexcept;
  int OpenAt(const char* path, bool own_name) noexcept;
  ThreadBlock* Here() noexcept;
  ThreadBlock* HereSlowly() noexcept;
  void WriteBlock(ThreadBlock& block, BlockType type) noexcept;
  int Write(const char* data, size_t bytes) noexcept;
  void StopLocked() noexcept;
  int64_t Now() const noexcept;
  static void ThreadEnds(void* block) noexcept;
  static void InChild() noexcept;

  std::atomic<uint64_t> session_{0};  // odd while a record is open
  std::atomic<uint64_t> next_number_{1};
  std::atomic<ThreadBlock*> blocks_{nullptr};  // all there ever were
  std::atomic<uint32_t> threads_{0};
  std::atomic<bool> opens_at_event_{false};  // in a child
  std::atomic<int> process_{0};              // that opened it
  std::atomic<uint64_t> names_[kMostNames / 64] = {};
  RecordFile file_;  // these guarded by the lock
  int64_t began_ = 0;
  Source source_ = Source::kArrays;
  char path_[4096] = {};
  char wanted_path_[4096] = {};
};

}  // namespace tidepool::record

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_OUTPUT_H_
