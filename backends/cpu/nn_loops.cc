#include "tidepool/backends/cpu/nn_loops.h"

namespace tidepool::cpu {

const NnLoops& NetworkLoops() {
#if defined(__x86_64__)
  static const NnLoops& loops = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                                    ? kAvx2NnLoops
                                    : kPortableNnLoops;
  return loops;
#else
  return kPortableNnLoops;
#endif
}

}  // namespace tidepool::cpu
