#include "tidepool/examples/digit_server/chunk_framing.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

std::string Quoted(char c) { return absl::StrCat("\"", absl::CHexEscape(std::string(1, c)), "\""); }

int ValueOf(char c) { return absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10; }

}  // namespace

HeadRefusal ChunkFraming::Add(absl::string_view bytes) {
  while (!bytes.empty()) {
    if (state_ == State::kData) {
      const int64_t taken = std::min(left_, static_cast<int64_t>(bytes.size()));
      bytes.remove_prefix(static_cast<size_t>(taken));
      left_ -= taken;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    HeadRefusal refusal = AddOne(bytes[0]);
    if (refusal.status != 0) return refusal;
    bytes.remove_prefix(1);
  }
  return {};
}

HeadRefusal ChunkFraming::AddOne(char c) {
  switch (state_) {
    case State::kSize:
    case State::kBlank:
      return AddOfSize(c);
    case State::kExtension:
      if (c == '\r') return state_ = State::kSizeEnd, HeadRefusal();
      if (c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
        return {400, absl::StrCat("an extension of a chunk: found ", Quoted(c),
                                  ", expected a line that ends with CR LF")};
      }
      return {};
    case State::kSizeEnd:
      if (c != '\n') break;
      left_ = size_;
      claimed_ += size_;
      state_ = size_ == 0 ? State::kEnd : State::kData;
      return {};
    case State::kDataEnd:
    case State::kDataLineEnd:
      if (c != (state_ == State::kDataEnd ? '\r' : '\n')) {
        return {400, absl::StrCat("a chunk of ", size_, " bytes: found ", Quoted(c),
                                  " behind them, expected CR LF")};
      }
      if (state_ == State::kDataEnd) return state_ = State::kDataLineEnd, HeadRefusal();
      state_ = State::kSize;
      has_digits_ = false;
      size_ = 0;
      return {};
    case State::kEnd:
      if (c == '\r') return state_ = State::kEndLineEnd, HeadRefusal();
      return {400, absl::StrCat("a trailer behind the last chunk: found ", Quoted(c),
                                ", expected an empty line, for trailers are not read")};
    case State::kEndLineEnd:
      if (c != '\n') break;
      state_ = State::kWhole;
      return {};
    case State::kData:
    case State::kWhole:
      return {};  // the next request's
  }
  return {400, absl::StrCat("a line of a chunk: found ", Quoted(c), " behind CR, expected LF")};
}

HeadRefusal ChunkFraming::AddOfSize(char c) {
  if (state_ == State::kSize && absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
    has_digits_ = true;
    // Limits are 2^40 bytes at most, so that a digit more overflows nothing.
    size_ = size_ * 16 + ValueOf(c);
    if (size_ <= body_bytes_ - claimed_) return {};
    return {413, absl::StrCat("the body is larger than the limit of ", body_bytes_,
                              " bytes: its chunks claim more")};
  }
  if (!has_digits_) {
    return {400, absl::StrCat("the size of a chunk: found ", Quoted(c),
                              ", expected hexadecimal digits")};
  }
  if (c == '\r') return state_ = State::kSizeEnd, HeadRefusal();
  if (c == ';') return state_ = State::kExtension, HeadRefusal();
  // Some senders fill lines up with blanks, which RFC 9112 has readers bear with.
  if (c == ' ' || c == '\t') return state_ = State::kBlank, HeadRefusal();
  return {400, absl::StrCat("the size of a chunk: found ", Quoted(c),
                            " behind its digits, expected CR LF or an extension")};
}

}  // namespace tidepool
