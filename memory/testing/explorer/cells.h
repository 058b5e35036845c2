// What explorer::Sync has beside atomic variables: plain variables, mutexes, fences.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_CELLS_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_CELLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tidepool/memory/testing/explorer/atomic_cell.h"
#include "tidepool/memory/testing/explorer/view.h"
#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer::internal {

// Sees that of two accesses to a plain variable, one a write, one happens before the other. Being
// made and destroyed are writes. No step: whether two accesses race does not depend on when they
// run.
class PlainCell {
 public:
  // `bytes` from here on are the cell and its variable.
  PlainCell(const Where& where, size_t bytes);
  ~PlainCell();
  PlainCell(const PlainCell&) = delete;
  PlainCell& operator=(const PlainCell&) = delete;

  void Get(const Where& where);
  void Set(const Where& where);

 private:
  void CheckWritten(Engine& engine, const char* what, const Where& where);
  void CheckRead(Engine& engine, const char* what, const Where& where);

  uint32_t id_;  // in Engine::lifetimes()
  int writer_;
  uint32_t written_at_;
  Where written_where_;
  AccessClocks reads_;
};

class MutexCell {
 public:
  explicit MutexCell(const Where& where);
  ~MutexCell();
  MutexCell(const MutexCell&) = delete;
  MutexCell& operator=(const MutexCell&) = delete;

  void Lock(const Where& where);
  bool TryLock(const Where& where);
  void Unlock(const Where& where);

 private:
  Engine& Use(const Where& where);
  void Hold(Engine& engine);

  uint32_t id_;  // in Engine::lifetimes()
  int holder_ = -1;
  const Snapshot* released_ = nullptr;
  AccessClocks accesses_;
};

void Fence(std::memory_order order, const Where& where);

// Memory that is followed from Sync::New to Sync::Delete. `type` as sync.h's TypeName has it.
void* NewBlock(size_t bytes, size_t alignment, const char* type);
// Its object could not be made.
void DropBlock(void* memory) noexcept;
void BeginDelete(void* object, const Where& where);
void EndDelete();

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_CELLS_H_
