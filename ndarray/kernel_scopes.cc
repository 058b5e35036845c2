#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool::internal {

thread_local constinit uint8_t call_marks = 0;
thread_local constinit Workspace* kernel_scratch = nullptr;

}  // namespace tidepool::internal
