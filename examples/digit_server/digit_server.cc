#include "tidepool/examples/digit_server/digit_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
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
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kResourceExhausted: return 507;
    default: return 500;
  }
}

void Answer(httplib::Response& response, int status, const nlohmann::json& body) {
  response.status = status;
  // Bytes of a request may be quoted in errors.
  response.set_content(body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                       "application/json");
}

}  // namespace

class DigitServer::Impl {
 public:
  Impl(nn::Model& model, const DigitServerOptions& options)
      : model_(model),
        options_(options),
        height_(HeightOf(model)),
        width_(model.network->input_shape()[1]),
        translator_(height_, width_) {
    server_.new_task_queue = [this] { return new httplib::ThreadPool(options_.workers); };
    server_.set_payload_max_length(static_cast<size_t>(options_.body_limit_bytes));
    server_.set_tcp_nodelay(true);
    // The library would share the port with any other process that listens on it.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.Post("/digits", [this](const httplib::Request& request, httplib::Response& response) {
      Guarded(response, [&] { Answer(response, 200, Read(request.body)); });
    });
    server_.Get("/memory", [](const httplib::Request&, httplib::Response& response) {
      Guarded(response, [&] {
        std::ostringstream text;
        NDManager::System().DebugDump(text);
        text << "\n" << MemoryTracker::Global().Snapshot().ToString();
        response.set_content(text.str(), "text/plain");
      });
    });
    server_.Get("/metrics", [](const httplib::Request&, httplib::Response& response) {
      Guarded(response, [&] { response.set_content(MetricsText(), kMetricsContentType); });
    });
    server_.Get("/health", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
    server_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      Answer(response, response.status,
             {{"error", response.status == 413 ? "the body is larger than the limit"
                                               : "no such page; see /digits, /memory, "
                                                 "/metrics, /health"}});
    });
  }
  ~Impl() { Stop(); }

  void Start() {
    port_ = options_.port == 0 ? server_.bind_to_any_port(options_.host)
            : server_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                 : -1;
    if (port_ < 0) {
      ThrowFailedPrecondition(absl::StrCat("digit server: cannot listen on ", options_.host, ":",
                                           options_.port));
    }
    listener_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  int port() const { return port_; }
  void Stop() {
    if (!listener_.joinable()) return;
    server_.stop();
    listener_.join();
    predictors_.clear();
  }
  void Wait() {
    if (listener_.joinable()) listener_.join();
  }

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
      Answer(response, StatusOf(error), {{"error", error.message()}});
    } catch (const std::bad_alloc&) {
      Answer(response, 507, {{"error", "out of memory"}});
    } catch (const std::exception& error) {
      Answer(response, 500, {{"error", error.what()}});
    }
  }

  nlohmann::json Read(const std::string& body) {
    std::vector<GreyImage> images;
    if (LooksLikePng(body)) {
      images.push_back(DecodePng(body, height_, width_));
    } else {
      images = DecodeRaw(body, height_, width_);
    }
    nlohmann::json digits = nlohmann::json::array();
    for (const Digit& digit : MyPredictor().PredictBatch(images)) {
      digits.push_back({{"digit", digit.digit}, {"probability", digit.probability}});
    }
    return {{"digits", digits}};
  }

  // The calling worker's own, made with its first request.
  Predictor& MyPredictor() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Predictor>& predictor = predictors_[std::this_thread::get_id()];
    if (predictor == nullptr) {
      predictor = std::make_unique<Predictor>(
          model_, translator_, absl::StrCat("worker ", predictors_.size()), options_.budget_bytes);
    }
    return *predictor;
  }

  nn::Model& model_;
  const DigitServerOptions options_;
  const int64_t height_, width_;
  DigitTranslator translator_;
  httplib::Server server_;
  std::thread listener_;
  int port_ = -1;
  std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<Predictor>> predictors_;
};

DigitServer::DigitServer(nn::Model& model, const DigitServerOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
DigitServer::~DigitServer() = default;
void DigitServer::Start() { impl_->Start(); }
int DigitServer::port() const { return impl_->port(); }
void DigitServer::Stop() { impl_->Stop(); }
void DigitServer::Wait() { impl_->Wait(); }

}  // namespace tidepool
