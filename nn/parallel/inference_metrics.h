// What all services of the process (ParallelInference) have done, as text that Prometheus scrapes: to be written behind
// MetricsText() (memory/metrics/metrics.h), which has their workspaces.
//
//   server.Get("/metrics", [](const Request&, Response& response) {
//     response.set_content(MetricsText() + nn::InferenceMetricsText(), kMetricsContentType);
//   });
//
// Names, labels and what they mean: docs/metrics.md. A series is of all services of one name on one device; counters include
// those that are gone, so they never fall.
//
// Threads: any, beside services at work. Cost: a lock of each service for a copy of its numbers, and the text, about 3 kB for each
// name. Errors: std::bad_alloc.
#ifndef TIDEPOOL_NN_PARALLEL_INFERENCE_METRICS_H_
#define TIDEPOOL_NN_PARALLEL_INFERENCE_METRICS_H_

#include <string>

namespace tidepool::nn {

// All families, as they are now; empty before there was a service.
std::string InferenceMetricsText();

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_INFERENCE_METRICS_H_
