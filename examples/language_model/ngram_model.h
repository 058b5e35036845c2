// A character model by counting, for comparison: interpolated Kneser-Ney smoothing (Kneser and Ney
// 1995; Chen and Goodman 1999).
//
//   NgramModel model(5, symbols);   // the next symbol by the four before it
//   model.Add(text); ...
//   model.Finish();
//   double p = model.Probability(text, i);   // of text[i] behind the symbols before it
#ifndef TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_NGRAM_MODEL_H_
#define TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_NGRAM_MODEL_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tidepool::examples {

class NgramModel {
 public:
  // Symbols are bytes below `symbols`; what stands before a text is a symbol of its own.
  NgramModel(int order, int symbols);

  void Add(const std::string& text);
  // After the last text: counts of how many symbols a shorter context came behind.
  void Finish();
  // Positive for every symbol; of all symbols at a place the sum is 1.
  double Probability(const std::string& text, size_t at) const;

 private:
  struct Counts {
    std::vector<int> of_symbol;
    int all = 0, different = 0;
  };
  using Contexts = std::unordered_map<std::string, Counts>;
  std::string Context(const std::string& text, size_t at, int length) const;
  void Count(Contexts& contexts, const std::string& context, unsigned char symbol) const;

  int order_, symbols_;
  std::vector<Contexts> by_length_;  // of the context
};

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_LANGUAGE_MODEL_NGRAM_MODEL_H_
