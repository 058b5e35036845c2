// What one thread ends while another one's call uses it: the last part of c_api_test.c.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidepool/tools/c_api/check.h"
#include "tidepool/tools/c_api/tidepool.h"

void TestRaces(const char* path);

enum { kRounds = 6, kBytes = 8 << 20, kFloats = kBytes / 4, kExamples = 64, kClasses = 10 };

static tidepool_array array;
static tidepool_manager manager;
static float* memory;
static int calls;  // that succeeded

static void Count(void) { __atomic_fetch_add(&calls, 1, __ATOMIC_RELEASE); }
static void WaitForCalls(int count) {
  while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) < count) sched_yield();
}

static void ExpectDead(tidepool_status status) {
  CHECK(status == TIDEPOOL_FAILED_PRECONDITION && strlen(tidepool_error_message()) > 0);
}

// Calls again and again until the array is dead, so that nearly every moment is within a call.
static void* Read(void* unused) {
  (void)unused;
  tidepool_status status;
  while ((status = tidepool_array_read(array, memory, kBytes)) == TIDEPOOL_OK) {
    CHECK(memory[0] == 1 && memory[kFloats - 1] == 1);
    Count();
  }
  ExpectDead(status);
  return NULL;
}

static void* Write(void* unused) {
  (void)unused;
  tidepool_status status;
  while ((status = tidepool_array_write(array, memory, kBytes)) == TIDEPOOL_OK) Count();
  ExpectDead(status);
  return NULL;
}

static void* Make(void* unused) {
  (void)unused;
  const int64_t dims[] = {kFloats};
  tidepool_status status;
  tidepool_array made;
  while ((status = tidepool_array_from_data(manager, TIDEPOOL_FLOAT32, 1, dims, memory, kBytes,
                                            &made)) == TIDEPOOL_OK) {
    OK(tidepool_array_release(made));
    Count();
  }
  ExpectDead(status);
  CHECK(made == NULL);
  return NULL;
}

static void CloseUnder(void* (*call)(void*), int closes_manager) {
  const int64_t dims[] = {kFloats};
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kFloats; ++i) memory[i] = 1;
    OK(tidepool_manager_new(NULL, "closed", NULL, &manager));
    OK(tidepool_array_full(manager, TIDEPOOL_FLOAT32, 1, dims, 1, &array));
    calls = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call, NULL) == 0);
    WaitForCalls(2);
    OK(closes_manager ? tidepool_manager_close(manager) : tidepool_array_close(array));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tidepool_array_release(array));
    OK(tidepool_manager_release(manager));
  }
}

static tidepool_predictor predictor;
static float expected[kExamples * kClasses];

// A call of a predictor is not cut off: it has all its results, or its model was released before.
static void* Predict(void* unused) {
  (void)unused;
  float results[kExamples * kClasses];
  for (int i = 0; i < 200; ++i) {
    const tidepool_status status = tidepool_predictor_predict(
        predictor, memory, kExamples * 28 * 28 * sizeof(float), kExamples, results, sizeof results);
    if (status != TIDEPOOL_OK) {
      FAILS(TIDEPOOL_FAILED_PRECONDITION, "the predictor's model was released", status);
      break;
    }
    CHECK(memcmp(results, expected, sizeof results) == 0);
    Count();
  }
  return NULL;
}

static void ReleaseUnder(const char* path) {
  for (int round = 0; round < kRounds; ++round) {
    tidepool_model model;
    OK(tidepool_model_load(path, NULL, &model));
    OK(tidepool_predictor_new(model, NULL, &predictor));
    OK(tidepool_predictor_predict(predictor, memory, kExamples * 28 * 28 * sizeof(float), kExamples,
                                  expected, sizeof expected));
    calls = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, &Predict, NULL) == 0);
    WaitForCalls(2);
    tidepool_status status;
    while ((status = tidepool_model_release(model)) != TIDEPOOL_OK) {
      FAILS(TIDEPOOL_FAILED_PRECONDITION, "in a call on another thread", status);
      sched_yield();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_model_release(model));
    OK(tidepool_predictor_release(predictor));
  }
}

void TestRaces(const char* path) {
  memory = malloc(kBytes);
  CHECK(memory != NULL);
  CloseUnder(&Read, 0);
  CloseUnder(&Read, 1);
  CloseUnder(&Write, 0);
  CloseUnder(&Write, 1);
  CloseUnder(&Make, 1);
  for (int i = 0; i < kFloats; ++i) memory[i] = (float)(i % 97) / 97;
  ReleaseUnder(path);
  free(memory);
}
