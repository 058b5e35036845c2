// Blocks of memory that have the same pages where they have the same bytes: packed weights, of
// which XNNPACK of 2022 lets no two runtimes use one copy.
//
// A block is ordinary memory while it is filled. Share() then looks for a block with the same
// bytes, whoever's it is, and where there is one the pages of both are the same from there on, copy
// on write: who writes to one block changes no other. Where there is none, it is what later ones
// are compared with. The pages are of a file in memory (memfd) and go with the last block; where
// the system has no such files, or limits files to less (RLIMIT_FSIZE), nothing is shared.
//
// After fork() parent and child have the blocks of before in common, and neither takes pages of
// these away: they go, and count as memory of the system's meanwhile, when the last block of before
// has gone in both. What is shared from then on is each process's own.
//
// On the ledger (kExternal, owner "xnnpack") and in its budget: each block that is not shared, and
// what is shared once. Threads: any, each its blocks. Cost of Share(): the bytes are hashed, and
// compared once or copied once.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tidepool/memory/accounting/memory_charge.h"

namespace tidepool::cpu {

class SharedPages {
 public:
  static SharedPages& Global();
  static size_t InPages(size_t bytes);  // what a block takes

  // Zeros, aligned to a page; null: refused.
  std::byte* Allocate(size_t bytes) noexcept;
  void Release(std::byte* block) noexcept;
  // Of a block that nobody else looks at meanwhile. How many bytes it has in common with others
  // now: all of them, or none. Throws OutOfMemoryError; the block is only to be released then.
  size_t Share(std::byte* block);

  // All that is on the ledger.
  int64_t owned_bytes() const;
  size_t images() const;  // contents that are shared, or may be

 private:
  // Closed with the last image.
  struct File {
    explicit File(int its_file) : file(its_file) {}
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    const int file;
    off_t size = 0;
    bool is_of_two = false;  // processes, of which the other may look at any page
  };
  // What blocks have in common.
  struct Image {
    size_t bytes = 0;
    std::shared_ptr<File> file;
    off_t begin = 0;  // in the file
    int blocks = 0;
    MemoryCharge charge;
  };
  using Images = std::unordered_multimap<uint64_t, Image>;
  struct Block {
    size_t bytes = 0;
    MemoryCharge charge;  // while it has pages of its own
    Images::iterator image;
    bool is_shared = false;
  };

  bool HasFileLocked();
  // Where `bytes` of the file are free, or its end. Throws std::bad_alloc.
  off_t FreeRangeLocked(off_t bytes) const;
  bool HasBytesLocked(const Image& image, const std::byte* block) const;
  Images::iterator AddLocked(uint64_t hash, const std::byte* at, Block& block);
  // What the image was charged, to be given back without the lock.
  MemoryCharge DropLocked(Images::iterator image) noexcept;

  mutable std::mutex mutex_;
  std::shared_ptr<File> file_;  // of new images; null: none yet
  bool has_no_files_ = false;
  Images images_;  // by hash
  std::unordered_map<std::byte*, Block> blocks_;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_
