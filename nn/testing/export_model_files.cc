// Writes files of models and of parameters for Python to read (read_model_files.py):
//
//   export_model_files FOLDER      NAME.model of each example network that a model can be made of, NAME.parameters of all, in
//                                  f32 and one in f64; beside each FILE.expected: name, type, sum of the elements and shape
//                                  of a parameter per line
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/testing/example_networks.h"

using namespace tidepool;
using namespace tidepool::nn;

namespace {

void Expect(const Network& network, const std::string& path) {
  std::ofstream file(path + ".expected");
  file.precision(17);
  for (const NamedParameter& parameter : network.named_parameters()) {
    file << parameter.name << ' ' << DTypeName(parameter.value.dtype()) << ' '
         << Sum(Cast(parameter.value, DType::kFloat64)).Item<double>();
    for (int axis = 0; axis < parameter.value.rank(); ++axis)
      file << ' ' << parameter.value.dim(axis);
    file << '\n';
  }
}

void Export(const std::string& name, DType dtype, const std::string& folder) {
  NetworkOptions options;
  options.seed = 7;
  options.dtype = dtype;
  auto network = std::make_unique<Network>(ExampleNetwork(name, options));
  const std::string path = absl::StrCat(folder, "/", name, ".", DTypeName(dtype));
  SaveParameters(*network, path + ".parameters", {{"note", "of a test"}});
  Expect(*network, path + ".parameters");
  if (name == "program" || name == "autoencoder") return;  // no classifiers of a configuration
  Expect(*network, path + ".model");  // before the model's manager, which is capped, has it
  SaveModel(Model(name, 10, std::move(network)), path + ".model");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: export_model_files FOLDER\n");
    return 2;
  }
  try {
    for (const char* name : kExampleNetworks) Export(name, DType::kFloat32, argv[1]);
    Export("mlp", DType::kFloat64, argv[1]);
  } catch (const Error& error) {
    std::fprintf(stderr, "export_model_files: %s\n", error.message().c_str());
    return 1;
  }
}
