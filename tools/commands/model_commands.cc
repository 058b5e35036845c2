// evaluate, predict, kernels.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tidepool/eval/curve_plot.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/picture.h"
#include "tidepool/eval/roc.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/operator_cost.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/data/idx_file.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/image_model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/evaluate_model.h"
#include "tidepool/tools/commands/flags.h"
#include "tidepool/tools/commands/output_paths.h"

ABSL_FLAG(std::string, curves, "",
          "folder that gets roc, precision_recall and calibration pictures");
ABSL_FLAG(std::string, curves_as, "svg", "svg or png");
ABSL_FLAG(int64_t, max_operations, tidepool::nn::kMaxExampleOperations,
          "multiply-adds or the like for one image, at most");

namespace tidepool::tools {

namespace {

nn::Model ModelOfFlags() {
  const std::string file = Required("model_file", absl::GetFlag(FLAGS_model_file));
  nn::Model model = nn::LoadModel(
      file, ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode)), DeviceOfFlags(),
      nn::kMaxExampleElements, AtLeastOne("max_operations", absl::GetFlag(FLAGS_max_operations)));
  nn::RequireImageModel(model, file);
  return model;
}

// Where pictures of curves go: empty paths without --curves.
struct CurvePaths {
  std::string roc, precision_recall, calibration;
};

// Found wrong before anything is computed.
CurvePaths CurvePathsOfFlags(const std::vector<FlagPath>& inputs) {
  const std::string folder = absl::GetFlag(FLAGS_curves), as = absl::GetFlag(FLAGS_curves_as);
  if (as != "svg" && as != "png") {
    ThrowInvalidArgument(absl::StrCat("flag --curves_as is \"", as, "\", expected svg or png"));
  }
  if (folder.empty()) return {};
  const auto in_folder = [&](const char* name) { return absl::StrCat(folder, "/", name, ".", as); };
  CurvePaths paths{in_folder("roc"), in_folder("precision_recall"), in_folder("calibration")};
  try {
    CheckPicturesAreBuilt();
  } catch (Error& error) {
    error.AddContext("flag --curves");
    throw;
  }
  CheckOutputPaths(
      {{"curves", paths.roc}, {"curves", paths.precision_recall}, {"curves", paths.calibration}},
      inputs);
  return paths;
}

// Parameters may be finite and too large to compute with.
void RequireNumber(int64_t image, float probability) {
  if (std::isfinite(probability)) return;
  throw CommandFailed(absl::StrCat("image ", image, ": its probabilities are not finite"));
}

}  // namespace

int RunEvaluate() {
  ApplyThreads();
  const int64_t batch = AtLeastOne("batch", absl::GetFlag(FLAGS_batch));
  const std::string images_path = Required("images", absl::GetFlag(FLAGS_images));
  const std::string labels_path = Required("labels", absl::GetFlag(FLAGS_labels));
  const CurvePaths curves = CurvePathsOfFlags({{"images", images_path},
                                               {"labels", labels_path},
                                               {"model_file", absl::GetFlag(FLAGS_model_file)}});
  nn::Model model = ModelOfFlags();
  const LabelledImages images =
      ReadLabelledImages(images_path, labels_path, static_cast<int>(model.classes), kMaxIdxBytes,
                         [&](absl::Span<const int64_t> dims) {
                           CheckImageSize(images_path, dims[1], dims[2], model);
                         });
  const int classes = static_cast<int>(model.classes);
  Evaluation evaluation(classes);
  EvaluationCalibration calibration(classes);
  // At thresholds: some memory for each class, none for each image.
  ROCMultiClass roc(classes, classes <= 1000 ? 1000 : 100);
  EvaluateModel(model, images, ImagesAtOnce(model, batch), {&evaluation, &calibration, &roc});
  std::printf(
      "%s\ncalibration\n%s\nareas under the curves of each class against the others\n%s\naccuracy "
      "%.4f\n",
      evaluation.Report().c_str(), calibration.Report().c_str(), roc.Report().c_str(),
      evaluation.Accuracy());
  if (!curves.roc.empty()) {
    SavePicture(RocPlot(roc), curves.roc);
    SavePicture(PrecisionRecallPlot(roc), curves.precision_recall);
    SavePicture(ReliabilityPlot(calibration), curves.calibration);
    std::printf("wrote %s, %s and %s\n", curves.roc.c_str(), curves.precision_recall.c_str(),
                curves.calibration.c_str());
  }
  return kExitOk;
}

int RunPredict() {
  ApplyThreads();
  const int64_t batch = AtLeastOne("batch", absl::GetFlag(FLAGS_batch));
  const std::string path = Required("images", absl::GetFlag(FLAGS_images));
  nn::Model model = ModelOfFlags();
  IdxFile file = ReadIdx(path, 3, kMaxIdxBytes, [&](absl::Span<const int64_t> dims) {
    CheckImageSize(path, dims[1], dims[2], model);
  });
  LabelledImages images;
  images.count = file.dims[0];
  images.height = file.dims[1];
  images.width = file.dims[2];
  images.pixels = std::move(file.data);
  images.labels.assign(static_cast<size_t>(images.count), 0);  // not known, not used
  nn::ImageBatches batches(images, ImagesAtOnce(model, batch));
  std::printf("image,class,probability\n");
  int64_t image = 0;
  while (const std::optional<int64_t> next = batches.Claim()) {
    model.network->Infer([&] { return batches.Make(*next).features; },
                         [&](const NDArray& logits) {
                           const NDArray probabilities = Softmax(logits).To(Host());
                           const NDArray best = ArgMax(probabilities);
                           for (int64_t row = 0; row < best.NumElements(); ++row) {
                             const int64_t label = best.At<int64_t>({row});
                             RequireNumber(image, probabilities.At<float>({row, label}));
                             std::printf("%lld,%lld,%.4f\n", static_cast<long long>(image++),
                                         static_cast<long long>(label),
                                         probabilities.At<float>({row, label}));
                           }
                         });
  }
  return kExitOk;
}

int RunKernels() {
  std::printf("linked providers: %s\n%s\n%s\n%s",
              absl::StrJoin(KernelRegistry::Global().Providers(), ", ").c_str(),
              KernelRegistry::Global().Notes().c_str(), DescribeOperators().c_str(),
              KernelRegistry::Global().Table().c_str());
  return kExitOk;
}

}  // namespace tidepool::tools
