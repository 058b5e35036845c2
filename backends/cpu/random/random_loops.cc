#include "tidepool/backends/cpu/random/random_loops.h"

namespace tidepool::cpu {

const RandomLoops& FindRandomLoops() {
#if defined(__x86_64__)
  static const RandomLoops& loops =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kAvx2RandomLoops
                                                                      : kPortableRandomLoops;
  return loops;
#else
  return kPortableRandomLoops;
#endif
}

}  // namespace tidepool::cpu
