#include "tidepool/nn/network/lent_buffer.h"

#include <string>

namespace tidepool::nn {
namespace {

constexpr uint64_t kThere = 1, kGone = 2;

class LentOwner final : public BufferOwner {
 public:
  constexpr explicit LentOwner(const char* where) : where_(where) {}

 private:
  void Release(Buffer* buffer) noexcept override { delete buffer; }
  void Close(Buffer*) noexcept override {}
  std::string DescribeStale(uint64_t) const override {
    return std::string("it is of parameters ") + where_ +
           ", and is there only while the layers that have it run";
  }
  const char* const where_;
};

constinit LentOwner in_parts("in parts on the ranks of a job"), in_a_file("in a file");
constinit std::atomic<uint64_t> never_there{kGone};

}  // namespace

LentBuffer::LentBuffer(size_t bytes, From from) : cell_(kGone) {
  auto* const buffer = new Buffer();
  buffer->stamp_cell = &cell_;
  buffer->stamp.store(kThere, std::memory_order_relaxed);
  buffer->data = nullptr;
  buffer->bytes = bytes;
  buffer->owner = from == From::kRanks ? &in_parts : &in_a_file;
  buffer->id = NextBufferId();
  buffer->device = Host();
  buffer->kind = MemoryKind::kUnreferenced;
  buffer->imported = true;
  handle_ = BufferHandle(buffer);
}

LentBuffer::~LentBuffer() { handle_->stamp_cell = &never_there; }

void LentBuffer::set_data(std::byte* data, bool readable_tail) {
  handle_->data = data;
  handle_->readable_tail = readable_tail;
}

void LentBuffer::set_there(bool there) {
  cell_.store(there ? kThere : kGone, std::memory_order_relaxed);
}

}  // namespace tidepool::nn
