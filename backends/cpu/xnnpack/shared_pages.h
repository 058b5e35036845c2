// Blocks of memory that have the same pages where they have the same bytes: packed weights, of
// which XNNPACK of 2022 lets no two runtimes use one copy.
//
// A block is ordinary memory while it is filled. Share() then looks for a block with the same
// bytes, whoever's it is, and where there is one the pages of both are the same from there on, copy
// on write: who writes to one block changes no other. Where there is none, it is what later ones
// are compared with. The pages are of a file in memory (memfd) and go with the last block; where
// the system has no such files nothing is shared.
//
// On the ledger (kExternal, owner "xnnpack") and in its budget: each block that is not shared, and
// what is shared once. Threads: any, each its blocks. Cost of Share(): the bytes are hashed, and
// compared once or copied once.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
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
  // What blocks have in common.
  struct Image {
    size_t bytes = 0;
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

  int FileLocked();
  bool HasBytesLocked(const Image& image, const std::byte* block) const;
  Images::iterator AddLocked(uint64_t hash, const std::byte* at, Block& block);
  // What the image was charged, to be given back without the lock.
  MemoryCharge DropLocked(Images::iterator image) noexcept;

  mutable std::mutex mutex_;
  int file_ = -1;  // of all images; -1: none yet, -2: there is none to be had
  off_t end_ = 0;  // where the next image goes; ranges are not used again
  Images images_;  // by hash
  std::unordered_map<std::byte*, Block> blocks_;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_SHARED_PAGES_H_
