#include "tidepool/examples/digit_server/digit_server.h"

#include <httplib.h>

#include <cmath>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/nn/inference/predictor.h"

namespace tidepool {
namespace {

struct Digit {
  int64_t digit = 0;
  float probability = 0;
};

class DigitTranslator final : public nn::Translator<GreyImage, Digit> {
 public:
  DigitTranslator(int64_t height, int64_t width) : shape_{height, width, 1} {}

  NDList ProcessInput(nn::PredictorContext&, const GreyImage& image) override {
    NDArray pixels = Empty(shape_);
    float* data = pixels.mutable_data<float>();
    for (size_t i = 0; i < image.size(); ++i) data[i] = static_cast<float>(image[i]) / 255.0f;
    return {pixels};
  }
  Digit ProcessOutput(nn::PredictorContext&, NDList outputs) override {
    const TopKResult best = TopK(Softmax(outputs.Single()), 1, -1);
    return {best.places.At<int64_t>({0}), best.values.At<float>({0})};
  }

 private:
  Shape shape_;
};

int StatusOf(const Error& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kResourceExhausted:
      return 507;
    default:
      return 500;
  }
}

void CheckRange(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  ThrowInvalidArgument(
      absl::StrCat("digit server: ", what, " is ", value, ", expected ", least, " to ", most));
}

// Before anything is made of them.
const DigitServerOptions& Checked(const DigitServerOptions& options) {
  CheckRange("port", options.port, 0, 65535);
  CheckRange("workers", options.workers, 1, 256);
  CheckRange("budget_bytes", options.budget_bytes, 1, std::numeric_limits<int64_t>::max());
  return options;
}

}  // namespace

class DigitServer::Impl {
 public:
  Impl(nn::Model& model, const DigitServerOptions& options)
      : options_(Checked(options)),
        height_(HeightOf(model)),
        width_(model.network->input_shape()[1]),
        translator_(height_, width_),
        server_(options.limits) {
    for (int i = 1; i <= options_.workers; ++i) {
      free_.push_back(std::make_unique<Predictor>(model, translator_, absl::StrCat("worker ", i),
                                                  options_.budget_bytes));
    }
    server_.AddBodyPage("/digits", [this](const std::string& body, httplib::Response& response) {
      Guarded(response, [&] { Read(body, response); });
    });
    server_.AddPage("/memory", [](httplib::Response& response) {
      Guarded(response, [&] {
        std::ostringstream text;
        NDManager::System().DebugDump(text);
        text << "\n" << MemoryTracker::Global().Snapshot().ToString();
        response.set_content(text.str(), "text/plain");
      });
    });
    server_.AddPage("/metrics", [](httplib::Response& response) {
      Guarded(response, [&] { response.set_content(MetricsText(), kMetricsContentType); });
    });
    server_.AddPage(
        "/health", [](httplib::Response& response) { response.set_content("ok\n", "text/plain"); });
  }
  ~Impl() { Stop(); }

  void Start() { port_ = server_.Start(options_.host, options_.port); }
  int port() const { return port_; }
  void Stop() { server_.Stop(); }
  bool is_listening() const { return server_.is_listening(); }

 private:
  using Predictor = nn::Predictor<GreyImage, Digit>;

  static int64_t HeightOf(const nn::Model& model) {
    const Shape& input = model.network->input_shape();
    if (input.rank() != 3 || input[2] != 1) {
      ThrowInvalidArgument(absl::StrCat("digit server: the model takes ", input.ToString(),
                                        ", expected grey images [height, width, 1]"));
    }
    return input[0];
  }

  template <typename F>
  static void Guarded(httplib::Response& response, F function) {
    try {
      function();
    } catch (const Error& error) {
      BoundedServer::AnswerError(response, StatusOf(error), error.message());
    } catch (const std::bad_alloc&) {
      BoundedServer::AnswerError(response, 507, "out of memory");
    }
  }

  void Read(const std::string& body, httplib::Response& response) {
    const Lease lease(*this);  // first: images are made for as many requests as are computed
    // Once nobody is answered any more, those that waited pass the predictor on.
    if (lease.predictor() == nullptr || server_.is_cut()) {
      response.set_header("Retry-After", "1");
      return BoundedServer::AnswerError(response, 503, "all workers are busy");
    }
    std::vector<GreyImage> images;
    if (LooksLikePng(body)) {
      images.push_back(DecodePng(body, height_, width_));
    } else {
      images = DecodeRaw(body, height_, width_);
    }
    nlohmann::json digits = nlohmann::json::array();
    for (const Digit& digit : lease.predictor()->PredictBatch(images)) {
      if (!std::isfinite(digit.probability)) {
        ThrowInternal("the model's outputs are not finite: it is no model of digits");
      }
      digits.push_back({{"digit", digit.digit}, {"probability", digit.probability}});
    }
    response.set_content(nlohmann::json{{"digits", digits}}.dump(), "application/json");
  }

  // One of the predictors, for a request; those that wait for one have their bodies whole.
  class Lease {
   public:
    explicit Lease(Impl& server) : server_(server) {
      std::unique_lock<std::mutex> lock(server.mutex_);
      server.changed_.wait_for(lock, server.options_.limits.request_time,
                               [&] { return !server.free_.empty(); });
      if (server.free_.empty()) return;
      predictor_ = std::move(server.free_.back());
      server.free_.pop_back();
    }
    ~Lease() {
      if (predictor_ == nullptr) return;
      {
        const std::lock_guard<std::mutex> lock(server_.mutex_);
        server_.free_.push_back(std::move(predictor_));
      }
      server_.changed_.notify_one();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Predictor* predictor() const { return predictor_.get(); }  // null: all are busy

   private:
    Impl& server_;
    std::unique_ptr<Predictor> predictor_;
  };

  const DigitServerOptions options_;
  const int64_t height_, width_;
  DigitTranslator translator_;
  int port_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Predictor>> free_;  // under the mutex
  BoundedServer server_;                          // ends first: its threads use all of the above
};

DigitServer::DigitServer(nn::Model& model, const DigitServerOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
DigitServer::~DigitServer() = default;
void DigitServer::Start() { impl_->Start(); }
int DigitServer::port() const { return impl_->port(); }
void DigitServer::Stop() { impl_->Stop(); }
bool DigitServer::is_listening() const { return impl_->is_listening(); }

}  // namespace tidepool
