#include "tidepool/memory/workspace/unlocked_chunks.h"

#include <memory>

#include "tidepool/memory/accounting/callbacks.h"

namespace tidepool {

Allocation UnlockedChunks::Allocate(size_t bytes, size_t alignment) {
  const size_t footprint = FootprintBytes(bytes, alignment);
  const bool shared = footprint <= shared_bytes_;
  const bool waits = shared && !internal::InCallback();
  if (waits && takes_shared_) return Allocation::Refused(Refusal::kImpossible, this, bytes);
  auto chunk = std::make_unique<Chunk>();
  Chunk* const released = std::exchange(released_, nullptr);
  if (waits) takes_shared_ = true;
  size_t given_back = 0;
  const auto end = [&] {
    mutex_.lock();
    held_bytes_ -= given_back;
    if (!waits) return;
    takes_shared_ = false;
    answered_.notify_all();
  };
  mutex_.unlock();
  Allocation taken;
  try {
    given_back = Release(released);
    taken = upstream().Allocate(bytes, alignment);
  } catch (...) {
    end();
    throw;
  }
  end();
  if (!taken) return taken;
  held_bytes_ += footprint;
  ++taken_;
  *chunk = {taken.token, bytes, alignment, footprint, nullptr};
  taken.token = chunk.release();
  return taken;
}

void UnlockedChunks::Release(void* token, size_t, size_t) noexcept {
  auto* const chunk = static_cast<Chunk*>(token);
  chunk->next = std::exchange(released_, chunk);
}

size_t UnlockedChunks::Release(Chunk* chunks) noexcept {
  size_t bytes = 0;
  while (chunks != nullptr) {
    const std::unique_ptr<Chunk> chunk(std::exchange(chunks, chunks->next));
    upstream().Release(chunk->token, chunk->bytes, chunk->alignment);
    bytes += chunk->footprint;
  }
  return bytes;
}

size_t UnlockedChunks::GiveBack() noexcept {
  size_t all = 0;
  while (Chunk* const released = std::exchange(released_, nullptr)) {
    mutex_.unlock();
    const size_t bytes = Release(released);
    mutex_.lock();
    held_bytes_ -= bytes;
    all += bytes;
  }
  return all;
}

void UnlockedChunks::AwaitOther() {
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  answered_.wait(lock, [&] { return !takes_shared_; });
  lock.release();
}

}  // namespace tidepool
