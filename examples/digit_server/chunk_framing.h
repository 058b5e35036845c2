// The framing of a body in chunks, by RFC 9112, byte by byte before the library sees it: what a
// chunk claims is compared with the body's limit when its size has been read, not when its bytes
// have arrived.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_CHUNK_FRAMING_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_CHUNK_FRAMING_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/examples/digit_server/request_head.h"

namespace tidepool {

// Threads: one. Memory: a constant.
class ChunkFraming {
 public:
  // `body_bytes`: the most of all chunks together.
  explicit ChunkFraming(int64_t body_bytes) : body_bytes_(body_bytes) {}

  // The next bytes of the body as they arrive, in any parts. Refused at the first byte that cannot
  // be: 400 for a size that is not hexadecimal digits and perhaps an extension, a line that does
  // not end with CR LF, chunks that are not followed by CR LF, and trailers, which nobody here
  // reads; 413 for chunks that claim more than the limit, however many digits they need for it.
  // Nothing may be added behind a refusal.
  HeadRefusal Add(absl::string_view bytes);

 private:
  enum class State {
    kSize,
    kBlank,  // behind the digits
    kExtension,
    kSizeEnd,  // CR has come
    kData,
    kDataEnd,
    kDataLineEnd,
    kEnd,  // behind the last chunk
    kEndLineEnd,
    kWhole
  };

  HeadRefusal AddOne(char c);
  HeadRefusal AddOfSize(char c);

  const int64_t body_bytes_;
  State state_ = State::kSize;
  bool has_digits_ = false;
  int64_t claimed_ = 0;  // by the chunks before this one
  int64_t size_ = 0;     // of this one
  int64_t left_ = 0;     // of its bytes
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_CHUNK_FRAMING_H_
