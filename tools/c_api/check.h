// Checks for tests in C: each prints where it failed and ends the program.
#ifndef TIDEPOOL_TOOLS_C_API_CHECK_H_
#define TIDEPOOL_TOOLS_C_API_CHECK_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidepool/tools/c_api/names_of_cpp.h"
#include "tidepool/tools/c_api/tidepool.h"

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "%s:%d: %s is not so; last error: %s\n", __FILE__, __LINE__, #condition, \
              tidepool_error_message());                                                       \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

#define OK(call) CHECK((call) == TIDEPOOL_OK)

// `call` fails with that status and a message that has `part` and names nothing of C++.
#define FAILS(status, part, call)                                                             \
  do {                                                                                        \
    const tidepool_status found = (call);                                                     \
    if (found != (status) || strstr(tidepool_error_message(), part) == NULL) {                \
      fprintf(stderr, "%s:%d: %s: %s \"%s\", expected %s \"...%s...\"\n", __FILE__, __LINE__, \
              #call, tidepool_status_name(found), tidepool_error_message(),                   \
              tidepool_status_name(status), part);                                            \
      exit(1);                                                                                \
    }                                                                                         \
    CHECK(NameOfCpp(tidepool_error_message()) == NULL);                                       \
  } while (0)

// The whole number behind "key": in `json`, its first one; frees the text.
static inline long long NumberOf(char* json, const char* key) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char* const at = strstr(json, quoted);
  if (at == NULL) {
    fprintf(stderr, "no %s in %s\n", quoted, json);
    exit(1);
  }
  const long long number = strtoll(at + strlen(quoted), NULL, 10);
  tidepool_text_free(json);
  return number;
}

#endif  // TIDEPOOL_TOOLS_C_API_CHECK_H_
