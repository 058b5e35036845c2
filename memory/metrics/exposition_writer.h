// Writes the text format that Prometheus reads (version 0.0.4): families of samples, each family with
// its HELP and TYPE lines.
//
//   ExpositionWriter text;
//   text.Family("http_requests_total", ExpositionWriter::Type::kCounter, "Requests answered.");
//   text.Sample({{"code", "200"}, {"path", path}}, requests);
//   Send(std::move(text).Take());
//
// The caller writes the samples of a family one behind the other, each set of labels once. Names are
// the caller's to get right; label values may hold any bytes, and different ones stay different: a byte that
// is no UTF-8 becomes \xff and the like, and the backslash of a value that has such letters itself \x5c.
//
// Threads: one. Errors: std::bad_alloc.
#ifndef TIDEPOOL_MEMORY_METRICS_EXPOSITION_WRITER_H_
#define TIDEPOOL_MEMORY_METRICS_EXPOSITION_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tidepool {

class ExpositionWriter {
 public:
  // Of a family: a number that only rises, one that goes both ways, observations by bounds.
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  // Copied in the call.
  struct Label {
    std::string_view name;   // letters, digits and underscores, a digit not first
    std::string_view value;  // empty: the label is left out, which means the same
  };

  // Begins a family; `help` is one sentence of any bytes.
  void Family(std::string_view name, Type type, std::string_view help);
  // Of the family begun last.
  void Sample(std::initializer_list<Label> labels, int64_t value);
  void Sample(std::initializer_list<Label> labels, uint64_t value);
  void Sample(std::initializer_list<Label> labels, double value);
  // The samples of a family of type kHistogram: one for each bound, "+Inf", the sum and the count.
  // `counts`: of each bound's observations those above the bound before it and at most it, and one
  // more number, of those above all.
  void Histogram(std::initializer_list<Label> labels, std::span<const double> bounds,
                 std::span<const int64_t> counts, double sum);

  // The text so far.
  std::string Take() && { return std::move(text_); }

 private:
  void Begin(std::initializer_list<Label> labels, std::string_view suffix = {},
             std::string_view bound = {});
  void EndWith(double value);

  std::string text_;
  std::string name_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_METRICS_EXPOSITION_WRITER_H_
