// Models in safetensors files: parameters by name ("0.conv2d.filter", f32) and, as metadata, what
// network they belong to: model ("lenet", "mlp"), input ("28,28,1"), classes, architecture (the
// network's description).
#ifndef TIDEPOOL_NN_MODEL_FILE_H_
#define TIDEPOOL_NN_MODEL_FILE_H_

#include <cstdint>
#include <string>

#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

Model MakeModel(const std::string& name, const Shape& input, int64_t classes, uint64_t seed,
                WorkspaceMode mode, Device device = Host());

// Writes beside `path` and renames: a reader sees the old file or the whole new one. Throws Error
// naming the path.
void SaveModel(const Model& model, const std::string& path);
// Throws kInvalidArgument now rather than after hours of training when `path` cannot be written;
// leaves nothing behind.
void CheckModelPathIsWritable(const std::string& path);

// Throws kDataLoss naming file and field, found and expected: a broken file, missing metadata,
// another architecture, a tensor that is missing, unknown, or of another type or shape; else as
// SafetensorsReader::Open, and kUnimplemented for a mode that is not built. Memory: some times the
// file's size; what its header claims is checked against its tensors before room is made for it.
Model LoadModel(const std::string& path, WorkspaceMode mode = WorkspaceMode::kEnabled,
                Device device = Host());

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODEL_FILE_H_
