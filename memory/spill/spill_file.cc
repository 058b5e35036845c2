#include "tidepool/memory/spill/spill_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_engine.h"
#include "tidepool/memory/spill/spill_space.h"

namespace tidepool {
namespace {

constexpr size_t kMostBlockBytes = size_t{1} << 30;

// Of `bytes`, as even as whole blocks allow: the last one is what is left.
std::vector<internal::SpilledBlock> BlocksOf(size_t bytes, size_t block_bytes) {
  std::vector<internal::SpilledBlock> blocks((bytes + block_bytes - 1) / block_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].bytes = std::min(block_bytes, bytes - i * block_bytes);
    blocks[i].stored = blocks[i].bytes;
  }
  return blocks;
}

std::vector<size_t> StartsOf(const std::vector<internal::SpilledBlock>& blocks) {
  std::vector<size_t> starts(blocks.size());
  for (size_t i = 1; i < blocks.size(); ++i) starts[i] = starts[i - 1] + blocks[i - 1].bytes;
  return starts;
}

}  // namespace

const char* SpillCompressionName(SpillCompression compression) {
  switch (compression) {
    case SpillCompression::kNone:
      return "none";
    case SpillCompression::kLz4:
      return "lz4";
    case SpillCompression::kAuto:
      return "auto";
  }
  return "?";
}

SpillCompression ParseSpillCompression(absl::string_view what, absl::string_view name) {
  for (const SpillCompression one :
       {SpillCompression::kNone, SpillCompression::kLz4, SpillCompression::kAuto}) {
    if (name == SpillCompressionName(one)) return one;
  }
  ThrowInvalidArgument(absl::StrCat(what, ": found \"", name, "\", expected none, lz4 or auto"));
}

SpilledBytes& SpilledBytes::operator=(SpilledBytes&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  space_ = std::move(other.space_);
  blocks_ = std::move(other.blocks_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void SpilledBytes::Reset() noexcept {
  if (space_ == nullptr) return;
  space_->Give(blocks_);
  space_.reset();
  blocks_.clear();
  bytes_ = 0;
}

SpillTransfer& SpillTransfer::operator=(SpillTransfer&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  request_ = std::move(other.request_);
  engine_ = std::move(other.engine_);
  return *this;
}

void SpillTransfer::Abandon() noexcept {
  if (request_ != nullptr) engine_->Abandon(*request_);
  request_.reset();
  engine_.reset();
}

bool SpillTransfer::is_done() const { return request_ == nullptr || engine_->IsDone(*request_); }

SpilledBytes SpillTransfer::Wait() {
  if (request_ == nullptr) {
    ThrowFailedPrecondition(
        "SpillTransfer::Wait(): there is nothing to wait for, or it was waited for before");
  }
  const std::shared_ptr<internal::SpillRequest> request = std::move(request_);
  const std::shared_ptr<internal::SpillEngine> engine = std::move(engine_);
  engine->Await(request);
  if (!request->writes) return {};
  SpilledBytes kept = std::move(request->kept);
  kept.blocks_ = std::move(request->blocks);  // with their checksums
  return kept;
}

// ---- files --------------------------------------------------------------------------------------

SpillFile::SpillFile(SpillFileOptions options) {
  const size_t block = options.block_bytes;
  if (block == 0 || block % kPageBytes != 0 || block > kMostBlockBytes) {
    ThrowInvalidArgument(absl::StrCat("SpillFile: block_bytes is ", block,
                                      ", expected a multiple of ", kPageBytes, " up to ",
                                      kMostBlockBytes));
  }
  if (options.in_flight < 1 || options.in_flight > kMostInFlight) {
    ThrowInvalidArgument(absl::StrCat("SpillFile: in_flight is ", options.in_flight,
                                      ", expected 1 to ", kMostInFlight));
  }
  if (options.time_limit <= absl::ZeroDuration()) {
    ThrowInvalidArgument(absl::StrCat("SpillFile: time_limit is ",
                                      absl::FormatDuration(options.time_limit),
                                      ", expected more than 0"));
  }
  space_ = std::make_shared<internal::SpillSpace>(options.folder, options.capacity_bytes,
                                                  options.direct);
  name_ = space_->name();
  engine_ = std::make_shared<internal::SpillEngine>(options, space_);
}

SpillFile::~SpillFile() = default;

SpillTransfer SpillFile::BeginWrite(const void* data, size_t bytes) {
  if (data == nullptr && bytes > 0) {
    ThrowInvalidArgument(absl::StrCat(name_, ": a write of ", bytes, " bytes from null"));
  }
  auto request = std::make_shared<internal::SpillRequest>();
  request->writes = true;
  request->from = static_cast<const std::byte*>(data);
  request->blocks = BlocksOf(bytes, engine_->block_bytes());
  request->starts = StartsOf(request->blocks);
  std::vector<internal::SpilledBlock> blocks = request->blocks;
  // Of what is packed each block gets its place when its size is known.
  if (!engine_->packs()) {
    space_->Take(absl::MakeSpan(blocks));
    request->blocks.assign(blocks.begin(), blocks.end());
  }
  request->kept.space_ = space_;
  request->kept.blocks_ = std::move(blocks);
  request->kept.bytes_ = bytes;
  engine_->Begin(request);
  return SpillTransfer(engine_, std::move(request));
}

SpillTransfer SpillFile::BeginRead(const SpilledBytes& kept, void* data) {
  if (kept.space_ != space_) {
    ThrowInvalidArgument(absl::StrCat(name_, ": a read of ",
                                      kept.has_value()
                                          ? "bytes of another file (" + kept.space_->name() + ")"
                                          : "nothing that was written"));
  }
  if (data == nullptr && kept.bytes() > 0) {
    ThrowInvalidArgument(absl::StrCat(name_, ": a read of ", kept.bytes(), " bytes to null"));
  }
  auto request = std::make_shared<internal::SpillRequest>();
  request->to = static_cast<std::byte*>(data);
  request->blocks = kept.blocks_;
  request->starts = StartsOf(request->blocks);
  engine_->Begin(request);
  return SpillTransfer(engine_, std::move(request));
}

int64_t SpillFile::Trim() { return space_->Trim(); }

SpillFileStats SpillFile::stats() const {
  SpillFileStats stats;
  stats.capacity_bytes = space_->capacity_bytes();
  stats.used_bytes = space_->used_bytes();
  stats.file_bytes = space_->file_bytes();
  stats.direct = space_->is_direct();
  engine_->AddTo(stats);
  return stats;
}

}  // namespace tidepool
