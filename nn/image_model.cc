#include "tidepool/nn/image_model.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/finite.h"

namespace tidepool::nn {

void RequireImageModel(const Model& model, const std::string& where) {
  const Network& network = *model.network;
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    ThrowDataLoss(absl::StrCat(OneLine(where), ": its network ", found, ", expected ", expected));
  };
  if (network.inputs().size() != 1) {
    refuse(absl::StrCat("has ", network.inputs().size(), " inputs"), "one, an image");
  }
  if (network.output_shapes().size() != 1) {
    refuse(absl::StrCat("has ", network.output_shapes().size(), " outputs"),
           "one, the scores of the classes");
  }
  const Shape& input = network.input_shape();
  if (input.rank() != 3 || input[2] != 1) {
    refuse(absl::StrCat("takes ", input.ToString()), "an image, [height, width, 1]");
  }
  if (network.output_shape() != Shape{model.classes}) {
    refuse(absl::StrCat("answers an image with ", network.output_shape().ToString()),
           absl::StrCat("[", model.classes, "], a score for each class"));
  }
  for (const DType type : {network.dtype(), network.inputs()[0].dtype}) {
    if (type != DType::kFloat32) refuse(absl::StrCat("computes in ", DTypeName(type)), "f32");
  }
  RequireFinite(network, where);
}

}  // namespace tidepool::nn
