// JSON documents to parse: orders of a shop, as many as wanted, the same for the same seed.
#ifndef TIDEPOOL_EXAMPLES_CONTAINERS_DOCUMENTS_H_
#define TIDEPOOL_EXAMPLES_CONTAINERS_DOCUMENTS_H_

#include <cstdint>
#include <random>
#include <string>

inline std::string MakeOrders(int orders, uint32_t seed) {
  std::mt19937 random(seed);
  const auto number = [&](int most) { return std::to_string(random() % most); };
  std::string text = "{\"shop\": \"north\", \"orders\": [";
  for (int order = 0; order < orders; ++order) {
    if (order > 0) text += ", ";
    text += "{\"id\": " + number(1000000) + ", \"customer\": {\"name\": \"" +
            std::string(5 + random() % 40, static_cast<char>('a' + random() % 26)) +
            "\", \"city\": \"" + std::string(4 + random() % 20, 'c') +
            "\", \"known\": true}, \"items\": [";
    const int items = 1 + static_cast<int>(random() % 6);
    for (int item = 0; item < items; ++item) {
      if (item > 0) text += ", ";
      text += "{\"article\": \"A-" + number(100000000) + "-" + number(100000000) +
              "\", \"count\": " + number(9) + ", \"price\": " + number(500) + ".5}";
    }
    text += "], \"notes\": [\"" + std::string(random() % 300, 'n') + "\", null]}";
  }
  return text + "]}";
}

#endif  // TIDEPOOL_EXAMPLES_CONTAINERS_DOCUMENTS_H_
