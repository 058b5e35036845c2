#include "tidepool/backends/cpu/vector_loops.h"

namespace tidepool::cpu {

const VectorLoops& Loops() {
#if defined(__x86_64__)
  static const VectorLoops& loops =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kAvx2Loops : kPortableLoops;
  return loops;
#else
  return kPortableLoops;
#endif
}

}  // namespace tidepool::cpu
