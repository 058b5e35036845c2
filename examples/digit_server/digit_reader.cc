#include "tidepool/examples/digit_server/digit_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/digit_image.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/nn/network_cost.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

// {"digit":7,"probability":0.998} and a comma, at most.
constexpr int64_t kDigitBytes = 64;
// A digit of the answer before it is text, and its text.
constexpr int64_t kAnswerBytes = kDigitBytes + 16;

// No part takes longer than about a second: kernels cannot be stopped, but no part is begun for who
// is not answered any more.
constexpr double kOperationsOfPart = int64_t{1} << 32;

int64_t ImagesOfPart(const nn::Network& network, int64_t batch_limit) {
  if (network.config() == nullptr) return batch_limit;
  const double operations = std::max(1.0, nn::CostOfExample(*network.config()).operations);
  return static_cast<int64_t>(
      std::clamp(kOperationsOfPart / operations, 1.0, static_cast<double>(batch_limit)));
}

int64_t HeightOf(const nn::Model& model) {
  const Shape& input = model.network->input_shape();
  if (input.rank() != 3 || input[2] != 1) {
    ThrowInvalidArgument(absl::StrCat("digit server: the model takes ", input.ToString(),
                                      ", expected grey images [height, width, 1]"));
  }
  return input[0];
}

void CheckRange(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  ThrowInvalidArgument(
      absl::StrCat("digit server: ", what, " is ", value, ", expected ", least, " to ", most));
}

// Before anything is made of them.
const DigitReaderOptions& Checked(const DigitReaderOptions& options) {
  CheckRange("workers", options.workers, 1, 256);
  CheckRange("threads_of_worker", options.threads_of_worker, 1, 256);
  CheckRange("batch_limit", options.batch_limit, 1, 1 << 16);
  CheckRange("queue_limit", options.queue_limit, 1, 1 << 20);
  CheckRange("deadline in ms", options.deadline.count(), 1, 86'400'000);
  CheckRange("budget_bytes", options.budget_bytes, 1, HttpLimits::kMostBodyBytes);
  return options;
}

// The model stays as long as its network is used.
std::shared_ptr<const nn::Network> NetworkOf(std::shared_ptr<nn::Model> model) {
  const nn::Network* const network = model->network.get();
  return {std::move(model), network};
}

}  // namespace

DigitReader::DigitReader(std::shared_ptr<nn::Model> model, const DigitReaderOptions& options,
                         BoundedServer& server)
    : options_(Checked(options)),
      server_(server),
      height_(HeightOf(*model)),
      width_(model->network->input_shape()[1]),
      images_of_part_(ImagesOfPart(*model->network, options_.batch_limit)),
      pool_("digit server"),
      service_(NetworkOf(std::move(model)), {.workers = options_.workers,
                                             .batch_limit = images_of_part_,
                                             .queue_limit = options_.queue_limit,
                                             .when_full = nn::WhenFull::kRefuse,
                                             .threads_of_worker = options_.threads_of_worker,
                                             .budget_bytes = options_.budget_bytes,
                                             .name = "digit inference"}) {}

void DigitReader::UpdateModel(std::shared_ptr<nn::Model> model) {
  const int64_t images = ImagesOfPart(*model->network, options_.batch_limit);
  service_.UpdateModel(NetworkOf(std::move(model)));
  images_of_part_ = images;
}

std::string DigitReader::Answer(std::string_view body) {
  const Clock::time_point until = Clock::now() + options_.deadline;
  // Before anything is made for one that will be refused.
  if (const int64_t waiting = service_.stats().waiting; waiting >= options_.queue_limit) {
    throw nn::QueueFullError(absl::StrCat(waiting, " requests wait; try again later"));
  }
  const bool is_png = LooksLikePng(body);
  const int64_t count = is_png ? 1 : CountRawImages(body, height_, width_);
  const HttpLimits& limits = server_.limits();
  if (const int64_t most = limits.body_bytes / kDigitBytes; count > most) {
    throw Error(absl::StatusCode::kOutOfRange,
                absl::StrCat("found ", count, " images, expected at most ", most,
                             ": an answer is no larger than a body may be"));
  }
  const int64_t part = std::min(count, images_of_part_.load());
  const int64_t pixels_of_image = height_ * width_;
  const int64_t bytes = part * pixels_of_image * static_cast<int64_t>(sizeof(float)) +
                        (is_png ? pixels_of_image : 0) + count * kAnswerBytes;
  if (const int64_t most = limits.all_bodies_bytes + limits.work_bytes; bytes > most) {
    ThrowResourceExhausted(absl::StrCat(part, " images at once take too much memory: found ", bytes,
                                        " bytes, expected at most ", most));
  }
  const BoundedServer::WorkRoom room(server_, bytes);
  if (!room.is_there()) {
    throw nn::QueueFullError("too many images wait for the memory there is; try again later");
  }
  GreyImage pixels;
  std::string_view images = body;
  if (is_png) {
    pixels = DecodePng(body, height_, width_);
    images = {reinterpret_cast<const char*>(pixels.data()), pixels.size()};
  }
  std::vector<Digit> digits;
  digits.reserve(static_cast<size_t>(count));
  for (size_t at = 0; at < images.size();) {
    // Once nobody is answered any more, the workers are passed on.
    if (server_.is_cut()) {
      throw Error(absl::StatusCode::kCancelled, "the server stops");
    }
    // One that is over is a deadline all the same.
    const auto left =
        std::max<std::chrono::nanoseconds>(until - Clock::now(), std::chrono::nanoseconds(1));
    const std::string_view these = images.substr(at, static_cast<size_t>(part * pixels_of_image));
    try {
      ReadPart(these, left, digits);
    } catch (Error& error) {
      // Which array found no room is for whoever runs the server; this is for who asked.
      if (error.code() == absl::StatusCode::kResourceExhausted && part > 1 &&
          dynamic_cast<nn::QueueFullError*>(&error) == nullptr) {
        error.AddContext(
            absl::StrCat(part, " images at once take too much memory, expected fewer"));
      }
      throw;
    }
    at += these.size();
  }
  return JsonOf(digits);
}

void DigitReader::ReadPart(std::string_view images, std::chrono::nanoseconds deadline,
                           std::vector<Digit>& digits) {
  const PooledScope scope(pool_);
  const auto count = static_cast<int64_t>(images.size()) / (height_ * width_);
  nn::ParallelInference::Request request;
  NDArray pixels = Empty({count, height_, width_, 1});
  std::transform(images.begin(), images.end(), pixels.mutable_data<float>(),
                 [](char grey) { return static_cast<float>(static_cast<uint8_t>(grey)) / 255.0f; });
  request.inputs.push_back(std::move(pixels));
  request.deadline = deadline;
  // One that was let in is not refused in its middle.
  if (!digits.empty()) request.when_full = nn::WhenFull::kWait;
  const TopKResult best = TopK(Softmax(service_.Run(request)[0]), 1, -1);
  const int64_t* classes = best.places.data<int64_t>();
  const float* probabilities = best.values.data<float>();
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(probabilities[i])) {
      ThrowInternal("the model's outputs are not finite: it is no model of digits");
    }
    digits.push_back({classes[i], probabilities[i]});
  }
}

std::string DigitReader::JsonOf(const std::vector<Digit>& digits) {
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

}  // namespace tidepool
