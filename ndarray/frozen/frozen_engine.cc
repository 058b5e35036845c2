#include "tidepool/ndarray/frozen/frozen_engine.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tidepool {
namespace {

constinit std::atomic<FrozenEngine*> linked{nullptr};

}  // namespace

FrozenEngine* LinkedFrozenEngine() { return linked.load(std::memory_order_acquire); }

FrozenEngineRegistrar::FrozenEngineRegistrar(FrozenEngine* engine) {
  FrozenEngine* other = nullptr;
  if (linked.compare_exchange_strong(other, engine)) return;
  std::fprintf(stderr, "frozen engines: [%s] and [%s] are both linked, expected one\n",
               other->name(), engine->name());
  std::abort();
}

}  // namespace tidepool
