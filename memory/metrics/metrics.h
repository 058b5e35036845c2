// All that the memory runtime counts, as text that Prometheus scrapes (text format 0.0.4).
//
//   server.Get("/metrics", [](const Request&, Response& response) {
//     response.set_content(MetricsText(), kMetricsContentType);
//   });
//
// The ledger by device, kind and owner, workspaces, their pools and rings by id, budgets, the Reclaimer, and
// what the operating system says of the process. Names, labels and what they mean: docs/metrics.md; they stay
// as they are.
//
// Threads: any, beside workspaces at work, which it never waits for or keeps alive; numbers are not all of
// one moment. Counters never fall, but for names that were forgotten. Cost: the ledger's lock for a snapshot, the locks under which
// workspaces, pools and rings are made for some 100 ns each, a file read, and the text; kept within bounds by
// MetricsOptions where there are thousands of names. Errors: std::bad_alloc.
#ifndef TIDEPOOL_MEMORY_METRICS_METRICS_H_
#define TIDEPOOL_MEMORY_METRICS_METRICS_H_

#include <string>

namespace tidepool {

// The Content-Type of an answer with that text.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// How much is told where there are many names.
struct MetricsOptions {
  bool by_owner = true;  // what each owner holds and may hold; else devices and the process alone
  bool by_id = true;     // workspaces, pools and rings by id; else those of a device together
};

// All families, as they are now.
std::string MetricsText(const MetricsOptions& options = {});

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_METRICS_METRICS_H_
