// Arrays in safetensors files.
//
//   WriteSafetensorsArrays("model.safetensors", {{"w", w}, {"b", b}});
//   std::map<std::string, NDArray> model = ReadSafetensorsArrays("model.safetensors");
//
// Types: F32, F64, F16, BF16, I8 to I64, U8 to U64, BOOL. Errors: as safetensors_file.h;
// kUnimplemented for tensors of other types and shapes that arrays do not have (above rank 8),
// naming file, tensor and what was found, before any array is made; kFailedPrecondition for stale
// arrays.
#ifndef TIDEPOOL_NDARRAY_IO_SAFETENSORS_ARRAYS_H_
#define TIDEPOOL_NDARRAY_IO_SAFETENSORS_ARRAYS_H_

#include <map>
#include <string>

#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Every tensor of the file by its name, made in `place`; and such a file of arrays, dense ones,
// views and arrays of devices, with texts of its header's "__metadata__". A file appears whole or
// not at all.
std::map<std::string, NDArray> ReadSafetensorsArrays(const std::string& path,
                                                     Place place = Place::Current());
void WriteSafetensorsArrays(const std::string& path, const std::map<std::string, NDArray>& arrays,
                            const std::map<std::string, std::string>& metadata = {});

// The elements of one tensor into a dense array of its type and as many, on whichever device, straight from the file where
// that is the host. Bools other than 0 and 1 are read as 1. Errors: as SafetensorsReader::Read (an info that is not
// the file's is one); part of the array may have been
// written then. kInvalidArgument for another array, kFailedPrecondition as for other writes to it.
void ReadSafetensor(const SafetensorsReader& reader, const SafetensorInfo& info, NDArray& array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_SAFETENSORS_ARRAYS_H_
