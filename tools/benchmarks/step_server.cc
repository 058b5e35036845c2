#include "tidepool/tools/benchmarks/step_server.h"

#include <ctime>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tidepool/nn/data/digits.h"

namespace tidepool::tools {
namespace {

int64_t Nanoseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

// A field of /proc/self/status in KiB; -1 where there is none.
int64_t StatusKib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1));
  }
  return -1;
}

// Lets the peak of resident memory begin anew. False where the kernel does not offer it.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return file.good();
}

class Server {
 public:
  explicit Server(StepSide& side) : side_(side) {}

  std::string Answer(const std::string& line) {
    std::istringstream request(line);
    std::string verb;
    request >> verb;
    if (verb == "hello") return side_.Describe();
    if (verb == "begin") return Begin(request);
    if (!images_.has_value()) {
      throw std::runtime_error("request \"" + line + "\" before begin");
    }
    if (verb == "steps") return Steps(request);
    if (verb == "memory") {
      if (const int64_t device = side_.DevicePeakKib(); device >= 0) return std::to_string(device);
      return std::to_string(resident_before_ < 0 ? -1 : StatusKib("VmHWM") - resident_before_);
    }
    throw std::runtime_error("request \"" + line + "\", expected hello, begin, steps or memory");
  }

 private:
  std::string Begin(std::istringstream& request) {
    TrainingCase wanted;
    std::string folder;
    request >> wanted.model >> wanted.batch >> wanted.threads >> wanted.updater >> std::ws;
    if (!request || !std::getline(request, folder) || wanted.batch < 1 || wanted.threads < 1) {
      throw std::runtime_error("begin: expected MODEL BATCH THREADS UPDATER DATA, found \"" +
                               request.str() + "\"");
    }
    if (images_.has_value()) throw std::runtime_error("begin: this process has begun before");
    LabelledImages images = LoadImageFolder(folder).train;
    if (images.count < wanted.batch) {
      throw std::runtime_error("begin: " + folder + " has " + std::to_string(images.count) +
                               " images, fewer than a batch of " + std::to_string(wanted.batch));
    }
    images_ = std::move(images);
    batch_ = wanted.batch;
    resident_before_ = ResetPeak() ? StatusKib("VmRSS") : -1;
    return std::to_string(side_.Begin(wanted, *images_));
  }

  std::string Steps(std::istringstream& request) {
    int64_t count = 0;
    request >> count;
    if (!request || count < 1) {
      throw std::runtime_error("steps: expected a count of at least 1, found \"" + request.str() +
                               "\"");
    }
    std::ostringstream times;
    double loss = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t cpu = Nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
      const int64_t wall = Nanoseconds(CLOCK_MONOTONIC);
      loss = side_.Step(first_);
      const int64_t wall_end = Nanoseconds(CLOCK_MONOTONIC);
      times << ' ' << wall_end - wall << '/' << Nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
      first_ = first_ + 2 * batch_ <= images_->count ? first_ + batch_ : 0;
    }
    return std::to_string(loss) + times.str();
  }

  StepSide& side_;
  std::optional<LabelledImages> images_;
  int64_t batch_ = 0;
  int64_t first_ = 0;
  int64_t resident_before_ = -1;  // KiB
};

// The protocol is made of lines: a message must stay one.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

void ServeSteps(StepSide& side, std::istream& in, std::ostream& out) {
  Server server(side);
  for (std::string line; std::getline(in, line);) {
    std::string answer;
    try {
      answer = "ok " + server.Answer(line);
    } catch (const std::exception& error) {
      answer = std::string("error ") + error.what();
    }
    out << OneLine(std::move(answer)) << std::endl;
  }
}

}  // namespace tidepool::tools
