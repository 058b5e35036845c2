// Memory of one execution: taken by moving a pointer, given back all at once.
//
// The same requests in the same order get the same addresses in each execution, so that code which
// compares or hashes addresses does the same each time. Nothing is used twice within an execution.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_ARENA_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tidepool::explorer::internal {

class Arena {
 public:
  // `alignment` is a power of two, at most 4096.
  void* Allocate(size_t bytes, size_t alignment) {
    const uintptr_t begin = (next_ + alignment - 1) & ~(uintptr_t{alignment} - 1);
    if (begin + bytes > end_ || next_ == 0) return AllocateInNextChunk(bytes, alignment);
    next_ = begin + bytes;
    return reinterpret_cast<void*>(begin);
  }

  template <typename T>
  T* AllocateArray(size_t count) {
    return static_cast<T*>(Allocate(count * sizeof(T), alignof(T)));
  }

  // Takes back everything; the chunks are kept.
  void Reset() {
    chunk_ = 0;
    next_ = end_ = 0;
    if (!chunks_.empty()) Use(0);
  }

 private:
  struct Chunk {
    std::unique_ptr<char[]> bytes;
    size_t size;
  };
  static constexpr size_t kChunkBytes = 256 << 10;

  void Use(size_t chunk) {
    chunk_ = chunk;
    next_ = reinterpret_cast<uintptr_t>(chunks_[chunk].bytes.get());
    end_ = next_ + chunks_[chunk].size;
  }

  void* AllocateInNextChunk(size_t bytes, size_t alignment) {
    const size_t needed = bytes + alignment;
    size_t chunk = next_ == 0 ? 0 : chunk_ + 1;
    while (chunk < chunks_.size() && chunks_[chunk].size < needed) ++chunk;
    if (chunk == chunks_.size()) {
      const size_t size = needed > kChunkBytes ? needed : kChunkBytes;
      chunks_.push_back({std::unique_ptr<char[]>(new char[size]), size});
    }
    Use(chunk);
    return Allocate(bytes, alignment);
  }

  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;
  uintptr_t next_ = 0;
  uintptr_t end_ = 0;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_ARENA_H_
