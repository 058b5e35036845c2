#include "tidepool/examples/digit_server/digit_server.h"

#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/network_cost.h"

namespace tidepool {
namespace {

struct Digit {
  int64_t digit = 0;
  float probability = 0;
};

// The pixels of all images of a request, one behind the other, are one array, and one in the
// network: what a request takes is known by the sizes of a handful of arrays, before the first is
// made.
class DigitTranslator final : public nn::Translator<std::string_view, std::vector<Digit>> {
 public:
  DigitTranslator(int64_t height, int64_t width) : height_(height), width_(width) {}

  NDList ProcessInput(nn::PredictorContext&, const std::string_view& images) override {
    const auto count = static_cast<int64_t>(images.size()) / (height_ * width_);
    NDArray pixels = Empty({count, height_, width_, 1});
    std::transform(images.begin(), images.end(), pixels.mutable_data<float>(), [](char grey) {
      return static_cast<float>(static_cast<uint8_t>(grey)) / 255.0f;
    });
    return {pixels};
  }
  std::vector<Digit> ProcessOutput(nn::PredictorContext&, NDList outputs) override {
    const TopKResult best = TopK(Softmax(outputs.Single()), 1, -1);
    const int64_t* digits = best.places.data<int64_t>();
    const float* probabilities = best.values.data<float>();
    std::vector<Digit> result(static_cast<size_t>(best.places.NumElements()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = {digits[i], probabilities[i]};
    return result;
  }
  const nn::Batchifier* batchifier() const override { return nullptr; }

 private:
  const int64_t height_, width_;
};

// {"digit":7,"probability":0.998} and a comma, at most.
constexpr int64_t kDigitBytes = 64;

// The images of a request are computed in parts of about a second: kernels cannot be stopped, but
// no part is begun for who is not answered any more.
constexpr double kOperationsOfPart = int64_t{1} << 32;

int64_t ImagesOfPart(const nn::Network& network) {
  constexpr int64_t kUnknown = 32, kMost = int64_t{1} << 24;
  if (network.config() == nullptr) return kUnknown;
  const double operations = std::max(1.0, nn::CostOfExample(*network.config()).operations);
  return static_cast<int64_t>(
      std::clamp(kOperationsOfPart / operations, 1.0, static_cast<double>(kMost)));
}

std::string JsonOf(const std::vector<Digit>& digits) {
  std::string text = "{\"digits\":[";
  text.reserve(text.size() + digits.size() * kDigitBytes + 2);
  for (const Digit& digit : digits) {
    char probability[32];  // as few digits as tell it from all others
    const auto end =
        std::to_chars(probability, probability + sizeof probability, digit.probability).ptr;
    absl::StrAppend(&text, &digit == digits.data() ? "" : ",", "{\"digit\":", digit.digit,
                    ",\"probability\":", absl::string_view(probability, end - probability), "}");
  }
  return text += "]}";
}

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
        images_of_part_(ImagesOfPart(*model.network)),
        translator_(height_, width_),
        server_(options.limits) {
    for (int i = 1; i <= options_.workers; ++i) {
      free_.push_back(std::make_unique<Predictor>(model, translator_, absl::StrCat("worker ", i),
                                                  options_.budget_bytes));
    }
    server_.AddBodyPage("/digits", [this](std::string_view body, httplib::Response& response) {
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
  bool TryStop() { return server_.TryStop(); }
  bool is_listening() const { return server_.is_listening(); }

 private:
  using Predictor = nn::Predictor<std::string_view, std::vector<Digit>>;

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

  static void AnswerBusy(httplib::Response& response) {
    response.set_header("Retry-After", "1");
    BoundedServer::AnswerError(response, 503, "all workers are busy");
  }

  void Read(std::string_view body, httplib::Response& response) {
    const Lease lease(*this);  // first: images are made for as many requests as are computed
    if (lease.predictor() == nullptr) return AnswerBusy(response);
    GreyImage pixels;
    std::string_view images = body;
    if (LooksLikePng(body)) {
      pixels = DecodePng(body, height_, width_);
      images = {reinterpret_cast<const char*>(pixels.data()), pixels.size()};
    }
    const int64_t count = CountRawImages(images, height_, width_);
    if (const int64_t most = options_.limits.body_bytes / kDigitBytes; count > most) {
      return BoundedServer::AnswerError(
          response, 413,
          absl::StrCat("found ", count, " images, expected at most ", most,
                       ": an answer is no larger than a body may be"));
    }
    std::vector<Digit> digits;
    digits.reserve(static_cast<size_t>(count));
    for (size_t at = 0; at < images.size();) {
      // Once nobody is answered any more, the predictor is passed on.
      if (server_.is_cut()) return AnswerBusy(response);
      const std::string_view part =
          images.substr(at, static_cast<size_t>(images_of_part_ * height_ * width_));
      const std::vector<Digit> found = Predict(*lease.predictor(), part, count);
      for (const Digit& digit : found) {
        if (!std::isfinite(digit.probability)) {
          ThrowInternal("the model's outputs are not finite: it is no model of digits");
        }
      }
      digits.insert(digits.end(), found.begin(), found.end());
      at += part.size();
    }
    response.body = JsonOf(digits);  // set_content would copy it
    response.set_header("Content-Type", "application/json");
  }

  // `part` of `count` images.
  static std::vector<Digit> Predict(Predictor& predictor, std::string_view part, int64_t count) {
    try {
      return predictor.Predict(part);
    } catch (Error& error) {
      // Which array found no room is for whoever runs the server; this is for who asked.
      if (error.code() == absl::StatusCode::kResourceExhausted && count > 1) {
        error.AddContext(
            absl::StrCat(count, " images at once take too much memory, expected fewer"));
      }
      throw;
    }
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
  const int64_t images_of_part_;
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
bool DigitServer::TryStop() { return impl_->TryStop(); }
bool DigitServer::is_listening() const { return impl_->is_listening(); }

}  // namespace tidepool
