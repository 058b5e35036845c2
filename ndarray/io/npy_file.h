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
// for stale arrays; OutOfMemoryError naming the file, only after the header has been checked against
// its length; kInvalidArgument for shapes of more axes or elements than arrays have (shape.h), and for names that an archive does not hold (empty, not UTF-8, with a zero
// byte); of a pipe or device kInvalidArgument. Memory: the arrays. No file makes a reader take more
// than it has bytes for: an uncompressed one its own size, a compressed one what its directory
// says, which is at most 1,032 times the file, adds up to no more than the limit, and is checked
// before the first array is read; entries that share bytes of it are refused. Cost: one pass over
// the data. Threads: any.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_FILE_H_
#define TIDEPOOL_NDARRAY_IO_NPY_FILE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The array of a file, made in `place` on whichever device.
NDArray ReadNpy(const std::string& path, Place place = Place::Current());
// The same of a file's bytes; `name` stands for the file in messages.
NDArray ParseNpy(absl::string_view bytes, const std::string& name, Place place = Place::Current());

// Row-major, in this machine's byte order; a view with gaps and an array of a device are copied
// before. bf16 is kInvalidArgument.
void WriteNpy(const std::string& path, const NDArray& array);

// Of all compressed arrays of a file together, unless the caller says otherwise. Stored ones are as
// large as the file.
inline constexpr uint64_t kMaxNpzInflatedBytes = uint64_t{4} << 30;

// Every array of the file by its name without ".npy". More inflated bytes than allowed are
// kResourceExhausted.
std::map<std::string, NDArray> ReadNpz(const std::string& path, Place place = Place::Current(),
                                       uint64_t max_inflated_bytes = kMaxNpzInflatedBytes);

// How an archive is written: as np.savez does, as np.savez_compressed does.
enum class NpzCompression { kNone, kDeflate };
// An archive of arrays by their names, each as WriteNpy has it.
void WriteNpz(const std::string& path, const std::map<std::string, NDArray>& arrays,
              NpzCompression compression = NpzCompression::kNone);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_FILE_H_
