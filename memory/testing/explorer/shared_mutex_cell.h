// explorer::Sync::SharedMutex: one thread has it alone, or several share it.
//
// As the standard has it: an unlock is seen by who locks or shares later, an unlock_shared by who locks later,
// and of two that share it neither sees the other. A wait ends in any order. Whether a thread that waits to
// have it alone keeps others from sharing it meanwhile is the library's choice: that nobody can go on if it does
// is a deadlock, too (Engine::WaitBehindWriters).
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_SHARED_MUTEX_CELL_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_SHARED_MUTEX_CELL_H_

#include <cstdint>

#include "tidepool/memory/testing/explorer/atomic_cell.h"
#include "tidepool/memory/testing/explorer/view.h"
#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer::internal {

class SharedMutexCell {
 public:
  explicit SharedMutexCell(const Where& where);
  ~SharedMutexCell();
  SharedMutexCell(const SharedMutexCell&) = delete;
  SharedMutexCell& operator=(const SharedMutexCell&) = delete;

  void Lock(const Where& where) { Take(IsMutated("lock", where), "lock", where); }
  bool TryLock(const Where& where) {
    return TryTake(IsMutated("try_lock", where), "try_lock", where);
  }
  void Unlock(const Where& where);
  void LockShared(const Where& where) { Take(Mode::kShared, "lock_shared", where); }
  bool TryLockShared(const Where& where) {
    return TryTake(Mode::kShared, "try_lock_shared", where);
  }
  void UnlockShared(const Where& where);

 private:
  // kMutated: shared, though the code asks for it alone and will unlock it so.
  enum class Mode : uint8_t { kAlone, kShared, kMutated };

  static Mode IsMutated(const char* operation, const Where& where);
  Engine& Use(const Where& where);
  void CheckNotHeld(Engine& engine, const char* operation, const Where& where);
  void Take(Mode mode, const char* operation, const Where& where);
  bool TryTake(Mode mode, const char* operation, const Where& where);
  void Hold(Engine& engine, Mode mode);
  void Free(Engine& engine, bool shared);
  void FailNotHeld(Engine& engine, const char* operation, const Where& where);
  bool IsFree(bool shared) const { return alone_ < 0 && (shared || sharers_ == 0); }

  uint32_t id_;           // in Engine::lifetimes()
  int alone_ = -1;        // who has it alone
  uint32_t sharers_ = 0;  // who share it, a bit each, ...
  uint32_t mutated_ = 0;  // ... and of these, who do by a mutation
  const Snapshot* unlocked_ = nullptr;
  const Snapshot* unshared_[kMaxSlots] = {};  // by whom
  AccessClocks accesses_;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_SHARED_MUTEX_CELL_H_
