// Parameters of networks in safetensors files: by name ("0.conv2d.filter"), in their type, what
// layers keep beside them among them, which is what Python's safetensors reads. Of any network, one
// of the program's own (Block) too.
#ifndef TIDEPOOL_NN_PARAMETER_FILE_H_
#define TIDEPOOL_NN_PARAMETER_FILE_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {

// Writes beside `path` and renames: a reader sees the old file or the whole new one. `more`: arrays
// beside the parameters. Throws Error naming the path.
void SaveParameters(const Network& network, const std::string& path,
                    const std::map<std::string, std::string>& metadata = {},
                    const std::vector<std::pair<std::string, NDArray>>& more = {});

// The same of values that are not all in memory at once, as where they are in parts on many ranks:
// called for one tensor after another, in an order of the file's own, each of which it appends
// whole.
using AppendBytes = absl::FunctionRef<void(absl::Span<const std::byte> bytes)>;
using WriteTensor = absl::FunctionRef<void(const std::string& name, AppendBytes append)>;
// `more`: shapes, of the network's type.
void SaveParametersInParts(const Network& network, const std::string& path,
                           const std::map<std::string, std::string>& metadata,
                           const std::vector<std::pair<std::string, Shape>>& more,
                           WriteTensor write);

// Into a network that has them, of any device: model files too. Throws kDataLoss naming file and
// tensor, found and expected, before anything is written: one that is missing, unknown, or of
// another type or shape; else as SafetensorsReader::Open. An error while reading leaves some of
// them written.
void LoadParameters(const std::string& path, Network& network);

// The same in parts. Throws as LoadParameters where the file's tensors are not those of a network
// of these parameters, of type `dtype`, before there is one.
void CheckParameters(const SafetensorsReader& reader, const std::string& path,
                     const std::vector<NamedSpec>& expected, DType dtype);
// Reads what was checked; an error while reading leaves some written.
void ReadParameters(const SafetensorsReader& reader, Network& network);

// Text of a file in a message: one line, of a length one can read.
std::string QuotedFromFile(absl::string_view text);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARAMETER_FILE_H_
