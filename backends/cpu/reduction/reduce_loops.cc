#include "tidepool/backends/cpu/reduction/reduce_loops.h"

namespace tidepool::cpu {

const ReduceLoops* FindReduceLoops(ReduceKind kind, ElementKind element) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) return Avx2ReduceLoops(kind, element);
#endif
  return PortableReduceLoops(kind, element);
}

}  // namespace tidepool::cpu
