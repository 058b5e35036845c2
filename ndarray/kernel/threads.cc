#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool {

thread_local constinit ThreadPool* ThreadPoolScope::pool_ = nullptr;

}  // namespace tidepool
