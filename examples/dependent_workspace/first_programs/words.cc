// A plain program, which knows nothing of Tidepool: counts the words of 400 texts.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

size_t DifferentWords(int text) {
  std::vector<std::string> words;
  for (int i = 0; i < 300; ++i) {
    words.push_back("a word of some length, number " + std::to_string(text * i % 97));
  }
  std::map<std::string, int> counts;
  for (const std::string& word : words) ++counts[word];
  return counts.size();
}

}  // namespace

int main() {
  size_t sum = 0;
  for (int text = 0; text < 400; ++text) sum += DifferentWords(text);
  std::printf("%zu\n", sum);
}
