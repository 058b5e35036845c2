// Prepared convolutions by shape: bounded, in the ledger (kExternal, owner "onednn"), given back to
// the Reclaimer.
//
// Threads: any. A convolution that was found stays valid while it is held. Cost: a lock and a hash
// of 168 bytes; a new shape takes about 1 ms under the lock.
#ifndef TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_CACHE_H_
#define TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tidepool/backends/onednn/convolution.h"
#include "tidepool/memory/accounting/reclaimer.h"

namespace tidepool::onednn {

class ConvolutionCache {
 public:
  // More shapes than this are made again when they come back: the one not used for longest goes.
  static constexpr size_t kMaxShapes = 256;

  static ConvolutionCache& Global();

  // Null where oneDNN has no optimised code; that is kept too.
  std::shared_ptr<const Convolution> Find(const ConvolutionShape& shape);

  // The Reclaimer's callback: periodically what was not used since the last time, at kIdle all that
  // no call holds.
  int64_t Reclaim(ReclaimDepth depth);
  size_t size() const;
  int64_t held_bytes() const;

 private:
  struct Hash {
    size_t operator()(const ConvolutionShape& shape) const;
  };
  struct Entry {
    std::shared_ptr<const Convolution> convolution;
    uint64_t last_use = 0;
  };
  using Map = std::unordered_map<ConvolutionShape, Entry, Hash>;

  // Both need mutex_ held.
  Map::iterator Erase(Map::iterator it);
  void Charge(int64_t bytes);

  mutable std::mutex mutex_;
  Map entries_;
  uint64_t clock_ = 0;
  uint64_t last_periodic_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace tidepool::onednn

#endif  // TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_CACHE_H_
