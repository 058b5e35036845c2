// Which spillables serve a request by going, and which of those are enough.
//
// Threads: one at a time. Cost: a look at the request's owners.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILLABLES_SERVING_H_
#define TIDEPOOL_MEMORY_SPILL_SPILLABLES_SERVING_H_

#include <cstdint>
#include <vector>

#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/spillables.h"

namespace tidepool {

class Spillables::Serving {
 public:
  // A request without an owner is the system's, or the device's, which counts all.
  explicit Serving(const MemoryRequest& request);

  bool Serves(const Item& item) const;
  // By how much the budgets lack room for it; 0: they have it.
  int64_t missing_bytes() const { return missing_bytes_; }
  // Fewer bytes in all would serve it, wherever they are: those on another device would not have gone.
  bool any_device() const { return any_device_; }

 private:
  const Device device_;
  const MemoryOwner* node_ = nullptr;  // whose limit is in its way
  bool any_device_ = false;
  int64_t missing_bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILLABLES_SERVING_H_
