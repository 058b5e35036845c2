#include "tidepool/ndarray/io/release_in_turn.h"

#include <new>
#include <vector>

namespace tidepool::internal {
namespace {

struct Waiting {
  void (*release)(void*);
  void* context;
};

// Of the outermost call. Without a destructor, because threads that are ending come here too.
thread_local std::vector<Waiting>* waiting = nullptr;

}  // namespace

void InTurn(void (*release)(void*), void* context) {
  if (waiting != nullptr) {
    try {
      waiting->push_back({release, context});
      return;
    } catch (const std::bad_alloc&) {
      return release(context);
    }
  }
  std::vector<Waiting> mine;
  waiting = &mine;
  release(context);
  while (!mine.empty()) {
    const Waiting next = mine.back();
    mine.pop_back();
    next.release(next.context);
  }
  waiting = nullptr;
}

}  // namespace tidepool::internal
