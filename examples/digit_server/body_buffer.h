// The bytes of a request's body. Of more than a few they lie in memory that the system has mapped
// for them alone: growing moves pages instead of copying bytes, only what has arrived is resident,
// and all of it goes back at the end, whatever else the process has allocated meanwhile.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_BODY_BUFFER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_BODY_BUFFER_H_

#include <cstddef>
#include <string_view>

namespace tidepool {

// Threads: one. That blocks are mapped is glibc's doing (BoundedServer::KeepLittleFreedMemory);
// with another allocator growing copies, and twice the bytes are held meanwhile.
class BodyBuffer {
 public:
  BodyBuffer() = default;
  ~BodyBuffer() { Clear(); }
  BodyBuffer(const BodyBuffer&) = delete;
  BodyBuffer& operator=(const BodyBuffer&) = delete;

  // Throws std::bad_alloc; what was there stays.
  void Append(const char* bytes, size_t size);
  // Gives the memory back.
  void Clear();
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_BODY_BUFFER_H_
