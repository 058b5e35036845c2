// NumPy's files: .npy holds one array, .npz (a zip of .npy files) named ones.
//
//   WriteNpy("weights.npy", w);                 // np.load("weights.npy")
//   NDArray w = ReadNpy("weights.npy");         // np.save("weights.npy", w)
//   WriteNpz("model.npz", {{"w", w}, {"b", b}});
//   std::map<std::string, NDArray> model = ReadNpz("model.npz");
//
// Types, byte orders and both memory orders of npy_format.h; arrays in Fortran order come as
// transposed views. Files appear whole or not at all. No pickled objects: they are refused.
//
// Errors: kNotFound, kPermissionDenied, ... from errno; kDataLoss for broken files, naming file,
// entry, byte, found and expected; kUnimplemented for other types, naming them; kFailedPrecondition
// for stale arrays; OutOfMemoryError, only after the header has been checked against the file's
// length. Cost: one pass over the data. Threads: any.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_FILE_H_
#define TIDEPOOL_NDARRAY_IO_NPY_FILE_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

NDArray ReadNpy(const std::string& path, Place place = Place::Current());
// The same of a file's bytes; `name` stands for the file in messages.
NDArray ParseNpy(absl::string_view bytes, const std::string& name,
                 Place place = Place::Current());
void WriteNpy(const std::string& path, const NDArray& array);

// Every array of the file by its name without ".npy".
std::map<std::string, NDArray> ReadNpz(const std::string& path, Place place = Place::Current());
enum class NpzCompression { kNone, kDeflate };  // np.savez, np.savez_compressed
void WriteNpz(const std::string& path, const std::map<std::string, NDArray>& arrays,
              NpzCompression compression = NpzCompression::kNone);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_FILE_H_
