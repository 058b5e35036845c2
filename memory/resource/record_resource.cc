#include "tidepool/memory/resource/record_resource.h"

#include <algorithm>
#include <utility>

namespace tidepool {

using What = RecordedRequest::What;

Allocation RecordResource::Allocate(size_t bytes, size_t alignment) {
  const Allocation block = upstream().Allocate(bytes, alignment);
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    // Room for this one and for the release of each live block, which may not fail.
    const size_t needed = requests_.size() + live_.size() + 2;
    if (requests_.capacity() < needed)
      requests_.reserve(std::max(needed, 2 * requests_.capacity()));
    if (block) live_.emplace(block.token, blocks_);
  } catch (...) {
    if (block) upstream().Release(block.token, bytes, alignment);
    throw;
  }
  requests_.push_back({block ? What::kGranted : What::kRefused, blocks_, bytes, alignment});
  if (block) ++blocks_;
  return block;
}

void RecordResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  {
    // Before the block goes: another thread may have its token a moment later.
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = live_.find(token); found != live_.end()) {
      requests_.push_back({What::kReleased, found->second, bytes, alignment});
      live_.erase(found);
    }
  }
  upstream().Release(token, bytes, alignment);
}

std::vector<RecordedRequest> RecordResource::requests() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

void RecordResource::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  requests_.clear();
  live_.clear();
  blocks_ = 0;
}

int64_t ReplayRequests(const std::vector<RecordedRequest>& requests, MemoryResource& resource) {
  int64_t refused = 0;
  std::vector<void*> tokens;  // by block; null: refused, or released
  std::vector<const RecordedRequest*> granted;
  for (const RecordedRequest& request : requests) {
    if (request.what == What::kRefused) continue;
    if (request.block >= tokens.size()) {
      tokens.resize(request.block + 1);
      granted.resize(request.block + 1);
    }
    void*& token = tokens[request.block];
    if (request.what == What::kGranted) {
      token = resource.Allocate(request.bytes, request.alignment).token;
      granted[request.block] = &request;
      if (token == nullptr) ++refused;
    } else if (token != nullptr) {
      resource.Release(std::exchange(token, nullptr), request.bytes, request.alignment);
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != nullptr) resource.Release(tokens[i], granted[i]->bytes, granted[i]->alignment);
  }
  return refused;
}

}  // namespace tidepool
