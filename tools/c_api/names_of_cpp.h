// For tests, in C and C++: messages for callers in C say nothing that C++ alone has.
#ifndef TIDEPOOL_TOOLS_C_API_NAMES_OF_CPP_H_
#define TIDEPOOL_TOOLS_C_API_NAMES_OF_CPP_H_

#include <ctype.h>
#include <stddef.h>
#include <string.h>

// The first of a message's words that looks like a name of C++: with "::" behind it, "Name(", "Name<" or of several words in
// one ("NewSubManager"; not "dZ", an operand). NULL: there is none. What stands in brackets or quotes is the caller's own.
static inline const char* NameOfCpp(const char* message) {
  int depth = 0, is_quoted = 0;
  for (const char* at = message; *at != 0; ++at) {
    if (*at == '"') is_quoted = !is_quoted;
    if (!is_quoted && *at == '[') ++depth;
    if (!is_quoted && *at == ']') --depth;
    if (is_quoted || depth > 0 || !isalpha((unsigned char)*at)) continue;
    const char* end = at;
    int humps = 0;
    for (; isalnum((unsigned char)*end) || *end == '_'; ++end)
      humps += end > at && isupper((unsigned char)*end) && islower((unsigned char)end[-1]);
    static const char* const names[] = {"DLPack", "NumPy", "MiB", "KiB", "GiB"};
    int is_known = *at == 'k' &&
                   isupper((unsigned char)at[1]);  // "kOptimized": a value of a workspace's config
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
      is_known |= strlen(names[i]) == (size_t)(end - at) && strncmp(at, names[i], end - at) == 0;
    const int is_capital = isupper((unsigned char)*at);
    if (!is_known && ((humps > 0 && end - at > 3) || strncmp(end, "::", 2) == 0 || *end == '<' ||
                      (is_capital && *end == '('))) {
      return at;
    }
    at = end - 1;
  }
  return NULL;
}

#endif  // TIDEPOOL_TOOLS_C_API_NAMES_OF_CPP_H_
