// The elements of an IDX file, of any rank and type, as an array.
#ifndef TIDEPOOL_NN_DATA_IDX_ARRAY_H_
#define TIDEPOOL_NN_DATA_IDX_ARRAY_H_

#include <cstdint>
#include <string>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/idx_file.h"

namespace tidepool {

// u8, i8, i16, i32, f32 or f64, of the file's dimensions, in the current place. Errors: as
// ReadAnyIdx; kUnimplemented for more dimensions than an array has (kMaxRank). Memory: the elements,
// twice for a moment.
NDArray ReadIdxArray(const std::string& path, uint64_t max_bytes = kMaxIdxBytes);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_IDX_ARRAY_H_
