// Writes each layer case with its weights, inputs and outputs, in f32, for the comparison with
// PyTorch (compare_with_torch.py):
//
//   export_layers FOLDER      one NAME.safetensors each: "input.0", parameters by name, "mask"
//                             (f32, where there is one), "output"; and NAME.json, the
//                             configuration
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/testing/layer_cases.h"
#include "tidepool/nn/network_json.h"

using namespace tidepool;
using namespace tidepool::nn;

namespace {

void Export(const LayerCase& c, const std::string& folder, bool masked) {
  const LayerArrays arrays = ArraysFor(c, DType::kFloat32, 4, masked, 23);
  LayerContext context{.parameters = arrays.parameters};
  context.mask = arrays.mask;
  const NDArray output = c.layer->ForwardOf(context, arrays.inputs);
  std::map<std::string, NDArray> named;
  for (size_t i = 0; i < arrays.inputs.size(); ++i)
    named[absl::StrCat("input.", i)] = arrays.inputs[i];
  const std::vector<ParameterSpec> specs = c.layer->ParametersOf(c.inputs);
  for (size_t i = 0; i < specs.size(); ++i) named[specs[i].name] = arrays.parameters[i];
  if (masked) named["mask"] = Cast(arrays.mask, DType::kFloat32);
  named["output"] = output;
  const std::string path = absl::StrCat(folder, "/", c.name, masked ? ".masked" : "");
  WriteSafetensorsArrays(path + ".safetensors", named);
  std::ofstream(path + ".json") << NetworkToJson(ConfigOf(c));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: export_layers FOLDER\n");
    return 2;
  }
  try {
    for (const LayerCase& c : LayerCases()) {
      Export(c, argv[1], false);
      if (c.is_sequence) Export(c, argv[1], true);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "export_layers: %s\n", error.message().c_str());
    return 1;
  }
}
