#include "tidepool/examples/digit_server/body_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tidepool {
namespace {

// A body of a few pictures; and what is mapped beyond what is needed, of which untouched pages take
// nothing.
constexpr size_t kSmall = size_t{16} << 10;
constexpr size_t kMapped = size_t{512} << 10;

}  // namespace

void BodyBuffer::Append(const char* bytes, size_t size) {
  if (size > capacity_ - size_) {
    const size_t needed = size_ + size;
    const size_t capacity = needed <= kSmall ? kSmall : needed + std::max(needed / 4, kMapped);
    void* grown = std::realloc(data_, capacity);
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<char*>(grown);
    capacity_ = capacity;
  }
  if (size > 0) std::memcpy(data_ + size_, bytes, size);
  size_ += size;
}

void BodyBuffer::Clear() {
  std::free(data_);
  data_ = nullptr;
  size_ = capacity_ = 0;
}

}  // namespace tidepool
