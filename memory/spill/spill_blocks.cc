// What is in a block of a spill file, and what is said of it.
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_engine.h"

namespace tidepool::internal {
namespace {

uint64_t ChecksumOf(const std::byte* data, size_t bytes) { return XXH3_64bits(data, bytes); }

double SecondsSince(SpillEngine::Clock::time_point begin) {
  return std::chrono::duration<double>(SpillEngine::Clock::now() - begin).count();
}

}  // namespace

// The slot's memory has what is to be written of `block`, which has its place then. Throws as SpillSpace::Take().
void SpillEngine::Fill(const Slot& slot, SpilledBlock* block) {
  const Clock::time_point begin = packs() ? Clock::now() : Clock::time_point();
  const std::byte* const from = slot.request->from + slot.request->starts[slot.block];
  const size_t packed = packer_.Pack(from, block->bytes, slot.data);
  block->stored = packed > 0 ? packed : block->bytes;
  if (packed == 0) std::memcpy(slot.data, from, block->bytes);
  std::memset(slot.data + block->stored, 0, WholePages(block->stored) - block->stored);
  block->checksum = ChecksumOf(slot.data, block->stored);
  if (!packs()) return;
  packer_.pace().Worked(SecondsSince(begin));
  space_->Take(absl::MakeSpan(block, 1));
}

// The caller's memory has what was read. Throws kDataLoss.
void SpillEngine::Empty(const Slot& slot) {
  const Clock::time_point begin = packs() ? Clock::now() : Clock::time_point();
  const SpillRequest& request = *slot.request;
  const SpilledBlock& block = request.blocks[slot.block];
  std::byte* const to = request.to + request.starts[slot.block];
  const uint64_t found = ChecksumOf(slot.data, block.stored);
  if (found != block.checksum) {
    ThrowDataLoss(absl::StrCat(Where(request, slot.block), " came back damaged: checksum ",
                               absl::Hex(found), ", expected ", absl::Hex(block.checksum)));
  }
  if (!block.is_packed()) {
    std::memcpy(to, slot.data, block.bytes);
  } else if (!packer_.Unpack(slot.data, block.stored, to, block.bytes)) {
    ThrowDataLoss(absl::StrCat(Where(request, slot.block), " does not unpack from ", block.stored));
  }
  if (packs()) packer_.pace().Worked(SecondsSince(begin));
}

std::string SpillEngine::Where(const SpillRequest& request, size_t block) const {
  const SpilledBlock& one = request.blocks[std::min(block, request.blocks.size() - 1)];
  return absl::StrCat(space_->name(), ": a ", request.writes ? "write" : "read", " of ", one.bytes,
                      " bytes at offset ", one.offset);
}

void SpillEngine::ThrowErrorOf(const Slot& slot, int64_t result) const {
  const std::string where = Where(*slot.request, slot.block);
  if (result >= 0) {
    const std::string words =
        absl::StrCat(where, " moved ", slot.moved, " bytes, expected ", slot.bytes);
    if (slot.request->writes) ThrowInternal(words);
    ThrowDataLoss(words);
  }
  const int error = static_cast<int>(-result);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    ThrowResourceExhausted(absl::StrCat(where, ": the disk is full (", std::strerror(error), ")"));
  }
  ThrowInternal(absl::StrCat(where, " failed: ", std::strerror(error)));
}

}  // namespace tidepool::internal
