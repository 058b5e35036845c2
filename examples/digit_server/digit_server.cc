#include "tidepool/examples/digit_server/digit_server.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/service_metrics.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/parallel/inference_metrics.h"

namespace tidepool {
namespace {

struct Refusal {
  Outcome outcome;
  int status;
};

Refusal RefusalOf(const Error& error) {
  if (dynamic_cast<const nn::QueueFullError*>(&error) != nullptr) return {Outcome::kQueueFull, 503};
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return {Outcome::kNoImage, 400};
    case absl::StatusCode::kOutOfRange:
      return {Outcome::kTooLarge, 413};
    case absl::StatusCode::kDeadlineExceeded:
      return {Outcome::kDeadline, 504};
    case absl::StatusCode::kCancelled:
      return {Outcome::kCancelled, 503};
    case absl::StatusCode::kResourceExhausted:
      return {Outcome::kNoMemory, 507};
    default:
      return {Outcome::kError, 500};
  }
}

// Before anything is made of them.
const DigitServerOptions& Checked(const DigitServerOptions& options) {
  if (options.port >= 0 && options.port <= 65535) return options;
  ThrowInvalidArgument(
      absl::StrCat("digit server: port is ", options.port, ", expected 0 to 65535"));
}

// What waits has as much room as what is computed.
HttpLimits LimitsOf(const DigitServerOptions& options) {
  HttpLimits limits = options.limits;
  const DigitReaderOptions& reader = options.reader;
  // Out of range, they are refused by name later.
  if (reader.workers > 0 && reader.budget_bytes > 0 &&
      reader.budget_bytes <= HttpLimits::kMostBodyBytes / reader.workers) {
    limits.work_bytes = reader.workers * reader.budget_bytes;
  }
  return limits;
}

}  // namespace

class DigitServer::Impl {
 public:
  Impl(std::shared_ptr<nn::Model> model, const DigitServerOptions& options)
      : options_(Checked(options)),
        server_(LimitsOf(options_)),
        reader_(std::move(model), options_.reader, server_) {
    server_.set_on_cut([this] { reader_.Cancel(); });
    server_.AddBodyPage("/digits", [this](std::string_view body, httplib::Response& response) {
      Read(body, response);
    });
    AddTextPage("/memory", [] {
      std::ostringstream text;
      NDManager::System().DebugDump(text);
      text << "\n" << MemoryTracker::Global().Snapshot().ToString();
      return text.str();
    });
    AddTextPage(
        "/metrics", [this] { return MetricsText() + nn::InferenceMetricsText() + ServiceText(); },
        kMetricsContentType);
    AddTextPage("/health", [] { return std::string("ok\n"); });
    AddTextPage("/healthz", [] { return std::string("ok\n"); });
    server_.AddPage("/readyz", [this](httplib::Response& response) {
      if (is_ready_) return response.set_content("ok\n", "text/plain");
      Refuse(response, 503, "the server stops");
    });
  }
  ~Impl() { Stop(); }

  void Start() { port_ = server_.Start(options_.host, options_.port); }
  int port() const { return port_; }
  void UpdateModel(std::shared_ptr<nn::Model> model) { reader_.UpdateModel(std::move(model)); }
  void Drain() { is_ready_ = false; }
  void Stop() {
    Drain();
    server_.Stop();
  }
  bool TryStop() {
    Drain();
    return server_.TryStop();
  }
  bool is_listening() const { return server_.is_listening(); }

 private:
  static void Refuse(httplib::Response& response, int status, const std::string& message) {
    if (status == 503) response.set_header("Retry-After", "1");
    BoundedServer::AnswerError(response, status, message);
  }

  template <typename F>
  void AddTextPage(const std::string& path, F text, const char* type = "text/plain") {
    server_.AddPage(path, [text, type](httplib::Response& response) {
      try {
        response.set_content(text(), type);
      } catch (const std::bad_alloc&) {
        Refuse(response, 507, "out of memory");
      }
    });
  }

  void Read(std::string_view body, httplib::Response& response) {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome = Outcome::kAnswered;
    try {
      response.body = reader_.Answer(body);  // set_content would copy it
      response.set_header("Content-Type", "application/json");
    } catch (const Error& error) {
      const Refusal refusal = RefusalOf(error);
      outcome = refusal.outcome;
      Refuse(response, refusal.status, error.message());
    } catch (const std::bad_alloc&) {
      outcome = Outcome::kNoMemory;
      Refuse(response, 507, "out of memory");
    }
    metrics_.Count(outcome, std::chrono::steady_clock::now() - begin);
  }

  std::string ServiceText() const {
    return metrics_.Text({.answers = server_.answers(),
                          .body_bytes = server_.body_bytes(),
                          .work_bytes = server_.work_bytes(),
                          .is_ready = is_ready_});
  }

  const DigitServerOptions options_;
  ServiceMetrics metrics_;
  std::atomic<bool> is_ready_{true};
  int port_ = -1;
  BoundedServer server_;
  DigitReader reader_;
};

DigitServer::DigitServer(nn::Model& model, const DigitServerOptions& options)
    : DigitServer(std::shared_ptr<nn::Model>(std::shared_ptr<void>(), &model), options) {}
DigitServer::DigitServer(std::shared_ptr<nn::Model> model, const DigitServerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), options)) {}
DigitServer::~DigitServer() = default;
void DigitServer::Start() { impl_->Start(); }
int DigitServer::port() const { return impl_->port(); }
void DigitServer::UpdateModel(std::shared_ptr<nn::Model> model) {
  impl_->UpdateModel(std::move(model));
}
void DigitServer::Drain() { impl_->Drain(); }
void DigitServer::Stop() { impl_->Stop(); }
bool DigitServer::TryStop() { return impl_->TryStop(); }
bool DigitServer::is_listening() const { return impl_->is_listening(); }

}  // namespace tidepool
