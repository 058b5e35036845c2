#include "tidepool/memory/testing/test_device.h"

namespace tidepool {

Device TestDevice() { return Host(); }

}  // namespace tidepool
