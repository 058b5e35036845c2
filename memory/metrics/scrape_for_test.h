// What the tests of the metrics have in common.
#ifndef TIDEPOOL_MEMORY_METRICS_SCRAPE_FOR_TEST_H_
#define TIDEPOOL_MEMORY_METRICS_SCRAPE_FOR_TEST_H_

#include <cstddef>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/workspace/allocate.h"

namespace tidepool {

using Labels = ExpositionLabels;

inline Exposition Scrape(const MetricsOptions& options = {}) {
  Exposition read = ExpositionParser::Parse(MetricsText(options));
  EXPECT_EQ(read.error, "");
  return read;
}

inline BufferHandle Request(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// A cycle: of a workspace's scope, or of a pool's.
template <typename Scope, typename Owner>
void CycleIn(Owner& owner, size_t bytes, int requests) {
  Scope scope(owner);
  for (int i = 0; i < requests; ++i) Request(bytes);
}

// The families `prefix`... of one scrape, with these labels.
class MetricsOf {
 public:
  MetricsOf(const Exposition& read, std::string prefix, Labels labels)
      : read_(read), prefix_(std::move(prefix)), labels_(std::move(labels)) {}

  void ExpectCounter(const std::string& name, double value) const {
    Expect(prefix_ + name + "_total", "counter", value);
  }
  void ExpectGauge(const std::string& name, double value) const {
    Expect(prefix_ + name, "gauge", value);
  }

 private:
  void Expect(const std::string& family, const char* type, double value) const {
    EXPECT_EQ(read_.families.at(family).type, type);
    EXPECT_EQ(read_.Value(family, labels_), value) << family;
  }

  const Exposition& read_;
  const std::string prefix_;
  const Labels labels_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_METRICS_SCRAPE_FOR_TEST_H_
