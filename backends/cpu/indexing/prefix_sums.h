// Cumulative sums of rows without gaps on processors with AVX2.
#ifndef TIDEPOOL_BACKENDS_CPU_INDEXING_PREFIX_SUMS_H_
#define TIDEPOOL_BACKENDS_CPU_INDEXING_PREFIX_SUMS_H_

#include <stdint.h>

namespace tidepool::cpu {

// z[i] = *sum + x[0] + ... + x[i], without x[i] if `exclusive`, in double, for the leading elements
// that make whole steps; backwards from x and z down if `reverse`. z may be x. Returns how many it
// wrote, and *sum with them added. Only where the processor has AVX2.
int64_t Avx2PrefixSums(const float* x, float* z, int64_t n, bool reverse, bool exclusive,
                       double* sum);
int64_t Avx2PrefixSums(const double* x, double* z, int64_t n, bool reverse, bool exclusive,
                       double* sum);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_INDEXING_PREFIX_SUMS_H_
