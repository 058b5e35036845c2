// Models in safetensors files: parameters by name ("0.conv2d.filter") and, as metadata, what
// network they belong to: model (its name), classes, network (its configuration as JSON,
// network_json.h), architecture (the same for people), and the model's notes, each as "note." and its name.
//
// A network of a configuration is made anew from its file. One that is a program (Block) cannot be:
// its parameters are saved and loaded by parameter_file.h.
#ifndef TIDEPOOL_NN_MODEL_FILE_H_
#define TIDEPOOL_NN_MODEL_FILE_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {

// One of models.h by its name.
Model MakeModel(const std::string& name, const Shape& input, int64_t classes, uint64_t seed,
                WorkspaceMode mode, Device device = Host());

// What all layers of a model from a file may make of one example together, in elements: a few bytes of
// configuration can ask for any amount of memory when the model is first used.
inline constexpr int64_t kMaxExampleElements = int64_t{1} << 27;
// What they may compute of one, in multiply-adds by shapes and fields (Layer::CostOf): else a window
// of many elements at many places takes hours of a program that nothing stops. Three times what
// ResNet-152 takes of 224 x 224 pixels (11.5e9): seconds by products, two minutes of a processor by the
// slowest kernels (windows over one channel).
inline constexpr int64_t kMaxExampleOperations = int64_t{1} << 35;

// Throws kInvalidArgument for a model that LoadModel with these limits could not make again, naming why: a name of more
// than 200 bytes or with control characters, a network that is a program, a layer of a kind that is not registered (layer_kinds.h) or
// whose fields do not say all (parameters of other names or shapes would come of them), more of an example than the limits
// allow. To be asked before hours of training.
void CheckModelCanBeSaved(const Model& model, int64_t max_example_elements = kMaxExampleElements,
                          int64_t max_example_operations = kMaxExampleOperations);
// Writes a file in the same folder and renames it: a reader sees the old file or the whole new one.
// Throws as CheckModelCanBeSaved, of which limits are not asked, as they are those of who loads; and Error naming the path.
void SaveModel(const Model& model, const std::string& path);
// The same of parameters that are not whole in one place (distributed/sharded_files.h).
void SaveModelInParts(const Model& model, const std::string& path, WriteTensor write);
// Throws as SaveModel would, now rather than after hours of training; leaves nothing behind.
void CheckModelPathIsWritable(const std::string& path);
// The bytes SaveModel will need where it will need them, kept from others until they are released.
// Throws as SaveModel and CheckModelPathIsWritable, and where there is no such room.
DiskReservation ReserveModelFile(const Model& model, const std::string& path);
// As SaveModel, to a new file that takes nobody's place: "<path><suffix>", with a number behind it
// where that is taken; where that cannot be written, of that name in the folder for temporary
// files. Returns its path; throws what SaveModel threw first where nothing can be written.
std::string SaveModelBeside(const Model& model, const std::string& path, const std::string& suffix);
// SaveModel for what must not be lost: where it throws, the model goes beside `path`
// (".unsaved"), and the message ends with where it is.
void SaveModelAnywhere(const Model& model, const std::string& path);

// Throws kDataLoss naming file and field, found and expected: a broken file, missing metadata, a
// configuration that cannot be, another architecture, a tensor that is missing, unknown, or of
// another type or shape; else as SafetensorsReader::Open. Memory: some times the file's size; what its header claims is checked against its tensors
// before room is made for it.
Model LoadModel(const std::string& path, WorkspaceMode mode = WorkspaceMode::kEnabled,
                Device device = Host(), int64_t max_example_elements = kMaxExampleElements,
                int64_t max_example_operations = kMaxExampleOperations);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODEL_FILE_H_
