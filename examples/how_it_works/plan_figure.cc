// Draws how a recorded step is placed: time from left to right in requests, addresses from the bottom up, a rectangle for each
// request. docs/how_it_works.md shows two of them.
//
//   plan_figure TRACE.csv "title" > figure.svg
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/problem_file.h"

namespace {

using tidepool::LifetimeBuffer;

constexpr int kWidth = 720, kHeight = 310, kLeft = 72, kRight = 16, kTop = 50, kBottom = 40;
constexpr int kHues = 7;

std::string Bytes(double bytes) {
  char text[32];
  if (bytes >= 1 << 20) {
    std::snprintf(text, sizeof text, "%.1f MiB", bytes / (1 << 20));
  } else {
    std::snprintf(text, sizeof text, "%.0f KiB", bytes / (1 << 10));
  }
  return text;
}

void Draw(const std::vector<LifetimeBuffer>& requests, const std::string& title) {
  const tidepool::Placement plan = tidepool::PlanGreedy(requests, 64);
  int64_t end = 0, sum = 0;
  for (const LifetimeBuffer& request : requests) {
    end = std::max(end, request.upper);
    sum += tidepool::AlignedSize(request.size, 64);
  }
  const double per_tick = (kWidth - kLeft - kRight) / static_cast<double>(end);
  const double per_byte = (kHeight - kTop - kBottom) / static_cast<double>(plan.peak);
  const double ground = kHeight - kBottom;

  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n",
      kWidth, kHeight);
  std::printf(
      "<style>\n"
      "text{fill:#333}.a{stroke:#888}.r{stroke:#fff;stroke-width:.5}.b{stroke:#b3261e;stroke-"
      "dasharray:5 4}\n"
      ".h0{fill:#4c78a8}.h1{fill:#72b7b2}.h2{fill:#54a24b}.h3{fill:#eeca3b}.h4{fill:#f58518}.h5{"
      "fill:#b279a2}.h6{fill:#9d9d9d}\n"
      "@media(prefers-color-scheme:dark){text{fill:#ddd}.r{stroke:#222}.b{stroke:#f2b8b5}}\n</"
      "style>\n");
  std::printf("<text x=\"%d\" y=\"18\" font-weight=\"bold\">%s</text>\n", kLeft, title.c_str());
  std::printf(
      "<text x=\"%d\" y=\"34\">%zu requests of %s in all, planned into %s; %s is alive at "
      "once</text>\n",
      kLeft, requests.size(), Bytes(static_cast<double>(sum)).c_str(),
      Bytes(static_cast<double>(plan.peak)).c_str(),
      Bytes(static_cast<double>(plan.lower_bound)).c_str());
  for (size_t i = 0; i < requests.size(); ++i) {
    const LifetimeBuffer& request = requests[i];
    const double height = static_cast<double>(request.size) * per_byte;
    if (height < 0.4) continue;  // not to be seen
    std::printf("<rect class=\"r h%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                static_cast<int>(i % kHues), kLeft + static_cast<double>(request.lower) * per_tick,
                ground - static_cast<double>(plan.offsets[i]) * per_byte - height,
                std::max(0.8, static_cast<double>(request.upper - request.lower) * per_tick),
                height);
  }
  const double bound = ground - static_cast<double>(plan.lower_bound) * per_byte;
  std::printf("<path class=\"b\" d=\"M%d %.1fH%d\"/>\n", kLeft, bound, kWidth - kRight);
  std::printf("<path class=\"a\" d=\"M%d %dV%.0fH%d\" fill=\"none\"/>\n", kLeft, kTop, ground,
              kWidth - kRight);
  std::printf("<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", kLeft - 6, bound + 4,
              Bytes(static_cast<double>(plan.lower_bound)).c_str());
  std::printf("<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">0</text>\n", kLeft - 6, ground + 4);
  std::printf("<text x=\"%d\" y=\"%d\">time, in requests</text>\n", kLeft, kHeight - 14);
  std::printf("<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%lld</text>\n</svg>\n", kWidth - kRight,
              kHeight - 14, static_cast<long long>(end));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "plan_figure: found %d arguments, expected a trace and a title\n",
                 argc - 1);
    return 2;
  }
  try {
    Draw(tidepool::ReadProblemFile(argv[1]).buffers, argv[2]);
  } catch (const tidepool::Error& error) {
    std::fprintf(stderr, "plan_figure: %s\n", error.what());
    return 1;
  }
  return 0;
}
