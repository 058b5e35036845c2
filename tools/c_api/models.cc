// Models and predictors of the C API.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/tools/c_api/attributes.h"
#include "tidepool/tools/c_api/calls.h"
#include "tidepool/tools/c_api/objects.h"

namespace tidepool::c_api {
namespace {

// What a model and its predictors share: how many calls of predictors are under way, until the model is released.
class ModelUse {
 public:
  // False: it was released.
  bool Begin() {
    int64_t calls = calls_.load(std::memory_order_relaxed);
    do {
      if (calls == kReleased) return false;
    } while (!calls_.compare_exchange_weak(calls, calls + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed));
    return true;
  }
  void End() { calls_.fetch_sub(1, std::memory_order_release); }

  // False: calls are under way, and nothing has changed. Again: true.
  bool Release() {
    int64_t calls = 0;
    return calls_.compare_exchange_strong(calls, kReleased, std::memory_order_acq_rel) ||
           calls == kReleased;
  }

 private:
  static constexpr int64_t kReleased = -1;
  std::atomic<int64_t> calls_{0};
};

struct OneModel {
  nn::Model model;
  std::shared_ptr<ModelUse> use = std::make_shared<ModelUse>();
};

constinit HandleTable<OneModel, HandleKind::kModel> models;

// One request: an array of examples, and where its results go. Null memory: to an array of the caller's place.
struct Request {
  NDArray features;
  void* results = nullptr;
  size_t results_bytes = 0;
  const char* function = nullptr;
};

class RequestTranslator final : public nn::Translator<Request, NDArray> {
 public:
  explicit RequestTranslator(bool softmax) : softmax_(softmax) {}

  NDList ProcessInput(nn::PredictorContext&, const Request& request) override {
    request_ = &request;
    return {request.features};
  }
  // Results that go to memory are written there from within the cycle: no array leaves it.
  NDArray ProcessOutput(nn::PredictorContext&, NDList outputs) override {
    NDArray output = softmax_ ? Softmax(outputs[0]) : outputs[0];
    if (request_->results == nullptr) return output;
    const NDArray dense =
        output.To(Host()).is_dense() ? output.To(Host()) : output.To(Host()).Dup();
    CheckBytes(request_->function, "results", request_->results_bytes, dense.shape(),
               dense.dtype());
    VisitDType(dense.dtype(), [&](auto element) {
      std::memcpy(request_->results, dense.data<decltype(element)>(), request_->results_bytes);
    });
    return NDArray();
  }
  const nn::Batchifier* batchifier() const override { return nullptr; }

 private:
  const bool softmax_;
  const Request* request_ = nullptr;
};

struct PredictorOptions {
  bool softmax;
  int64_t budget_bytes;
};

PredictorOptions OptionsOf(const char* function, const char* json) {
  Attributes options(absl::StrCat(function, ": options"), json);
  const PredictorOptions read = {options.Flag("softmax", false), options.Int("budget_bytes", 0)};
  options.CheckAllRead();
  return read;
}

struct OnePredictor {
  OnePredictor(OneModel& of, const PredictorOptions& options)
      : use(of.use),
        network(of.model.network),
        translator(options.softmax),
        predictor(of.model, translator, "predictor", options.budget_bytes) {}

  std::shared_ptr<ModelUse> use;
  std::shared_ptr<nn::Network> network;
  RequestTranslator translator;
  nn::Predictor<Request, NDArray> predictor;
  std::atomic<bool> is_in_use{false};
};

constinit HandleTable<OnePredictor, HandleKind::kPredictor> predictors;

// A predictor is one thread's at a time: who comes meanwhile is told. Its model stays until the call is over.
class InUse {
 public:
  InUse(const char* function, OnePredictor& predictor) : predictor_(predictor) {
    if (predictor.is_in_use.exchange(true, std::memory_order_acquire)) {
      ThrowFailedPrecondition(absl::StrCat(
          function, ": another thread is using this predictor; make one for each thread"));
    }
    if (predictor.use->Begin()) return;
    predictor.is_in_use.store(false, std::memory_order_release);
    ThrowFailedPrecondition(absl::StrCat(function, ": the predictor's model was released"));
  }
  ~InUse() {
    predictor_.use->End();
    predictor_.is_in_use.store(false, std::memory_order_release);
  }

 private:
  OnePredictor& predictor_;
};

void WriteShape(const Shape& shape, JsonWriter& json) {
  json.BeginArray();
  for (const int64_t size : shape.span()) json.Number(size);
  json.EndArray();
}

std::string Described(const nn::Model& model) {
  const nn::Network& network = *model.network;
  JsonWriter json;
  json.BeginObject();
  json.Member("name", model.name);
  json.Member("classes", model.classes);
  json.Key("inputs");
  json.BeginArray();
  for (const nn::InputConfig& input : network.inputs()) {
    json.BeginObject();
    json.Member("name", input.name);
    json.Key("shape");
    WriteShape(input.shape, json);
    json.Member("dtype", DTypeName(IsFloating(input.dtype) ? network.dtype() : input.dtype));
    json.EndObject();
  }
  json.EndArray();
  json.Key("outputs");
  json.BeginArray();
  for (const Shape& shape : network.output_shapes()) WriteShape(shape, json);
  json.EndArray();
  json.Member("dtype", DTypeName(network.dtype()));
  json.Member("parameters", network.NumParameters());
  json.Member("device", DeviceName(network.device()));
  json.Member("layers", network.Describe());
  json.Key("notes");
  json.BeginObject();
  for (const auto& [name, text] : model.notes) json.Member(name, text);
  json.EndObject();
  json.EndObject();
  return std::move(json).Take();
}

// The caller's memory as an array, for the length of the call.
NDArray FeaturesOf(const char* function, const nn::Network& network, const void* features,
                   size_t bytes, int64_t examples) {
  if (examples < 1)
    ThrowInvalidArgument(
        absl::StrCat(function, ": examples are ", examples, ", expected at least 1"));
  CheckGiven(function, "features", features);
  const nn::InputConfig& input = network.inputs()[0];
  const DType dtype = IsFloating(input.dtype) ? network.dtype() : input.dtype;
  int64_t dims[kMaxRank + 1] = {examples};
  std::copy_n(input.shape.dims(), input.shape.rank(), dims + 1);
  const Shape shape(absl::Span<const int64_t>(dims, input.shape.rank() + 1));
  CheckBytes(function, "features", bytes, shape, dtype);
  ImportedMemory memory = {
      .data = const_cast<void*>(features), .bytes = bytes, .release = nullptr, .context = nullptr};
  memory.read_only = true;
  return NDArray(BufferHandle(NewImportedBuffer(memory)), shape, dtype);
}

}  // namespace
}  // namespace tidepool::c_api

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

tidepool_status tidepool_model_load(const char* path, const char* device, tidepool_model* model) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "model", model);
    CheckGiven(function, "path", path);
    *model = static_cast<tidepool_model>(
        models.Add(OneModel{nn::LoadModel(path, WorkspaceMode::kEnabled, DeviceOfText(device))}));
  });
}

tidepool_status tidepool_model_release(tidepool_model model) {
  return Call(__func__, [&](const char* function) {
    if (model == nullptr) return;
    if (!models.Pin(function, model)->use->Release()) {
      ThrowFailedPrecondition(absl::StrCat(
          function,
          ": a predictor of the model is in a call on another thread; nothing was released"));
    }
    models.Release(function, model);
  });
}

tidepool_status tidepool_model_describe(tidepool_model model, char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    *json = NewText(Described(models.Pin(function, model)->model));
  });
}

tidepool_status tidepool_predictor_new(tidepool_model model, const char* options,
                                       tidepool_predictor* predictor) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "predictor", predictor);
    const auto pinned = models.Pin(function, model);
    *predictor =
        static_cast<tidepool_predictor>(predictors.Add(*pinned, OptionsOf(function, options)));
  });
}

tidepool_status tidepool_predictor_release(tidepool_predictor predictor) {
  return Call(__func__, [&](const char* function) { predictors.Release(function, predictor); });
}

tidepool_status tidepool_predictor_predict(tidepool_predictor predictor, const void* features,
                                           size_t features_bytes, int64_t examples, void* results,
                                           size_t results_bytes) {
  return Call(__func__, [&](const char* function) {
    const auto pinned = predictors.Pin(function, predictor);
    CheckGiven(function, "results", results);
    const InUse in_use(function, *pinned);
    pinned->predictor.Predict(
        {FeaturesOf(function, *pinned->network, features, features_bytes, examples), results,
         results_bytes, function});
  });
}

tidepool_status tidepool_predictor_predict_array(tidepool_predictor predictor,
                                                 tidepool_array features, tidepool_array* results) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "results", results);
    const auto pinned = predictors.Pin(function, predictor);
    const InUse in_use(function, *pinned);
    const NDArray x = *arrays.Pin(function, features);
    const BytesInUse bytes_in_use(x);
    *results = NewArrayHandle(pinned->predictor.Predict({x, nullptr, 0, function}));
  });
}

tidepool_status tidepool_predictor_stats(tidepool_predictor predictor, char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    *json = NewText(WorkspaceStatsJson(predictors.Pin(function, predictor)->predictor.workspace()));
  });
}
