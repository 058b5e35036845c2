// Managers, workspaces, models and threads: the other part of c_api_test.c.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tidepool/tools/c_api/check.h"
#include "tidepool/tools/c_api/tidepool.h"

void TestOwners(void);
void TestModels(const char* path);
void TestThreads(const char* path);

static const int64_t kDims[] = {64, 64};

static tidepool_array Ones(tidepool_manager manager) {
  tidepool_array array;
  OK(tidepool_array_full(manager, TIDEPOOL_FLOAT32, 2, kDims, 1, &array));
  return array;
}

static int IsAlive(tidepool_array array) {
  tidepool_array_info info = {.struct_size = sizeof info};
  OK(tidepool_array_get_info(array, &info));
  return info.is_alive;
}

static int64_t ArraysOf(tidepool_manager manager) {
  tidepool_manager_info info = {.struct_size = sizeof info};
  OK(tidepool_manager_get_info(manager, &info));
  return info.is_open ? info.arrays : -1;
}

static void TestManagers(void) {
  tidepool_manager base, sub;
  OK(tidepool_manager_new(NULL, "base", "host", &base));
  OK(tidepool_manager_new(base, "sub", NULL, &sub));
  tidepool_array mine = Ones(base), below = Ones(sub), free_one = Ones(NULL), made;
  CHECK(ArraysOf(base) == 1 && ArraysOf(sub) == 1);
  OK(tidepool_manager_attach(sub, free_one));
  CHECK(ArraysOf(sub) == 2);
  OK(tidepool_manager_lend(sub, mine));
  tidepool_manager_info info = {.struct_size = sizeof info};
  OK(tidepool_manager_get_info(sub, &info));
  CHECK(info.loans == 1 && info.bytes == 2 * 64 * 64 * 4 && info.is_open);
  char* json;
  OK(tidepool_manager_report(base, &json));
  CHECK(strstr(json, "\"name\":\"sub\"") != NULL && strstr(json, "\"loans\":1") != NULL);
  tidepool_text_free(json);

  OK(tidepool_manager_enter(sub));
  OK(tidepool_call("relu", NULL, &mine, 1, &made, 1));
  CHECK(ArraysOf(sub) == 3);
  OK(tidepool_manager_enter(base));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "not the innermost", tidepool_manager_leave(sub));
  OK(tidepool_manager_leave(base));
  OK(tidepool_manager_leave(sub));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "nothing is open", tidepool_manager_leave(sub));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "the manager is NULL", tidepool_manager_leave(NULL));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "kind array", tidepool_manager_leave((tidepool_manager)made));
  OK(tidepool_manager_return(sub, made));
  CHECK(ArraysOf(base) == 2);
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "nor lent", tidepool_manager_return(sub, made));
  CHECK(ArraysOf(base) == 2 && IsAlive(made));

  OK(tidepool_manager_close(sub));
  CHECK(!IsAlive(below) && !IsAlive(free_one) && IsAlive(mine) && IsAlive(made) &&
        ArraysOf(sub) == -1);
  tidepool_array none;
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "sub",
        tidepool_array_new(sub, TIDEPOOL_INT8, 2, kDims, &none));
  CHECK(none == NULL);
  OK(tidepool_manager_close(sub));
  OK(tidepool_manager_release(sub));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_manager_release(sub));
  OK(tidepool_manager_release(NULL));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "name is NULL", tidepool_manager_new(base, NULL, NULL, &sub));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "", tidepool_manager_new(base, "x", "cuda:16", &sub));
  CHECK(sub == NULL);

  // A budget, and one of the process.
  tidepool_manager poor;
  OK(tidepool_manager_new(NULL, "poor", NULL, &poor));
  OK(tidepool_manager_set_budget(poor, 20000));
  tidepool_array first = Ones(poor), second;
  FAILS(TIDEPOOL_RESOURCE_EXHAUSTED, "poor",
        tidepool_array_new(poor, TIDEPOOL_FLOAT32, 2, kDims, &second));
  CHECK(second == NULL);
  OK(tidepool_manager_release(poor));  // closes it
  CHECK(!IsAlive(first));
  OK(tidepool_memory_report(&json));
  OK(tidepool_set_memory_limit(NULL, NumberOf(json, "current_bytes") + (1 << 20)));
  FAILS(TIDEPOOL_RESOURCE_EXHAUSTED, "",
        tidepool_array_new(NULL, TIDEPOOL_FLOAT32, 2, (int64_t[]){1 << 12, 1 << 12}, &second));
  CHECK(strlen(tidepool_error_report()) > 0);
  OK(tidepool_set_memory_limit(NULL, INT64_MAX));
  OK(tidepool_set_memory_limit("host", INT64_MAX));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "", tidepool_set_memory_limit("mars", 1));
  CHECK(strlen(tidepool_error_report()) == 0);

  OK(tidepool_manager_release(base));
  CHECK(!IsAlive(mine) && !IsAlive(made));
  tidepool_array all[] = {mine, below, free_one, made, first};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) OK(tidepool_array_release(all[i]));
}

static long long StatOf(tidepool_workspace workspace, const char* key) {
  char* json;
  OK(tidepool_workspace_stats(workspace, &json));
  return NumberOf(json, key);
}

static long long SystemAllocations(void) {
  char* json;
  OK(tidepool_memory_report(&json));
  return NumberOf(json, "system_allocations");
}

static void Cycle(tidepool_workspace workspace, tidepool_operator product, tidepool_operator add,
                  tidepool_array total) {
  OK(tidepool_workspace_begin(workspace));
  tidepool_array x = Ones(NULL), y;
  const tidepool_array both[] = {x, x};
  OK(tidepool_operator_run(product, both, 2, &y, 1));
  const tidepool_array sum[] = {total, y};
  OK(tidepool_operator_run_into(add, sum, 2, &total, 1));
  OK(tidepool_array_release(x));
  OK(tidepool_array_release(y));
  OK(tidepool_workspace_end(workspace));
}

static void TestWorkspaces(void) {
  tidepool_workspace step;
  OK(tidepool_workspace_new("step", "{\"policy_learning\": \"kOptimized\", \"max_size\": 16777216}",
                            NULL, &step));
  tidepool_operator product, add;
  OK(tidepool_operator_new("matmul", NULL, &product));
  OK(tidepool_operator_new("add", NULL, &add));
  tidepool_array total = Ones(NULL);
  for (int i = 0; i < 3; ++i) Cycle(step, product, add, total);
  const long long allocations = SystemAllocations(), spills = StatOf(step, "spills");
  for (int i = 0; i < 10; ++i) Cycle(step, product, add, total);
  CHECK(SystemAllocations() == allocations && StatOf(step, "spills") == spills &&
        StatOf(step, "misses") == 0);
  CHECK(StatOf(step, "cycles") == 13 && StatOf(step, "leaked_arrays") == 0);
  float first;
  tidepool_array corner;
  OK(tidepool_call("slice", "{\"axis\": 0, \"begin\": 0, \"end\": 1}", &total, 1, &corner, 1));
  tidepool_array one;
  OK(tidepool_call("slice", "{\"axis\": 1, \"begin\": 0, \"end\": 1}", &corner, 1, &one, 1));
  OK(tidepool_array_read(one, &first, sizeof first));
  CHECK(first == 1 + 13 * 64);

  // Results that go to an array that is there are computed there: nothing is asked of the workspace.
  OK(tidepool_workspace_begin(step));
  const long long requests = StatOf(step, "hits") + StatOf(step, "spills");
  OK(tidepool_operator_run_into(add, (tidepool_array[]){total, total}, 2, &total, 1));
  CHECK(StatOf(step, "hits") + StatOf(step, "spills") == requests);
  OK(tidepool_workspace_end(step));

  // What outlives its cycle is dead, unless it was detached.
  OK(tidepool_workspace_begin(step));
  OK(tidepool_workspace_begin(step));  // nested: the cycle goes on
  OK(tidepool_workspace_end(step));
  tidepool_array left = Ones(NULL), kept;
  struct DLManagedTensor* tensor;
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "", tidepool_array_to_dlpack(left, NULL, 0, &tensor));
  OK(tidepool_array_detach(left, &kept));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "", tidepool_workspace_trim(step));
  OK(tidepool_workspace_end(step));
  CHECK(!IsAlive(left) && IsAlive(kept));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "step", tidepool_call("relu", NULL, &left, 1, &one, 1));
  CHECK(one == NULL);

  // Scopes end in their order; an abandoned cycle teaches nothing.
  tidepool_workspace other;
  OK(tidepool_workspace_new("other", "", "host", &other));
  OK(tidepool_workspace_begin(step));
  OK(tidepool_workspace_begin(other));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "innermost scope of this thread, which is workspace [other]",
        tidepool_workspace_end(step));
  OK(tidepool_workspace_end(other));
  OK(tidepool_workspace_abandon(step));
  CHECK(StatOf(step, "failed_cycles") == 1);
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "nothing is open", tidepool_workspace_end(step));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "the workspace is NULL", tidepool_workspace_end(NULL));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "kind array",
        tidepool_workspace_abandon((tidepool_workspace)left));
  OK(tidepool_workspace_trim(step));
  OK(tidepool_workspace_reset(step));
  Cycle(step, product, add, total);

  // Released while it is open: it goes when its cycle ends.
  OK(tidepool_workspace_begin(other));
  OK(tidepool_workspace_release(other));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_workspace_trim(other));
  OK(tidepool_workspace_end(other));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_workspace_end(other));

  FAILS(TIDEPOOL_INVALID_ARGUMENT, "expected at most 9223372036854775807",
        tidepool_workspace_new("x", "{\"max_size\": 9223372036854775808}", NULL, &other));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "no attribute [max_sise]; there are [initial_size]",
        tidepool_workspace_new("x", "{\"max_sise\": 1}", NULL, &other));
  FAILS(TIDEPOOL_INVALID_ARGUMENT,
        "expected one of kNone, kFirstLoop, kOverTime, kOptimized, kTraining",
        tidepool_workspace_new("x", "{\"policy_learning\": \"fast\"}", NULL, &other));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "alignment",
        tidepool_workspace_new("x", "{\"alignment\": 24}", NULL, &other));
  FAILS(TIDEPOOL_UNIMPLEMENTED, "cuda", tidepool_workspace_new("x", NULL, "cuda:0", &other));
  OK(tidepool_operator_release(product));
  OK(tidepool_operator_release(add));
  OK(tidepool_array_release(total));
  OK(tidepool_array_release(corner));
  OK(tidepool_array_release(left));
  OK(tidepool_array_release(kept));
  OK(tidepool_workspace_release(step));
}

void TestOwners(void) {
  TestManagers();
  TestWorkspaces();
}

enum { kPixels = 28 * 28, kClasses = 10, kExamples = 5 };

static void MakeImages(float* pixels) {
  for (int i = 0; i < kExamples * kPixels; ++i) pixels[i] = (float)(i % 97) / 97;
}

void TestModels(const char* path) {
  tidepool_model model;
  FAILS(TIDEPOOL_NOT_FOUND, "no_such_file", tidepool_model_load("no_such_file", NULL, &model));
  FAILS(TIDEPOOL_DATA_LOSS, "", tidepool_model_load("/proc/self/exe", NULL, &model));
  CHECK(model == NULL);
  OK(tidepool_model_load(path, NULL, &model));
  char* json;
  OK(tidepool_model_describe(model, &json));
  CHECK(strstr(json, "\"shape\":[28,28,1]") != NULL && strstr(json, "\"outputs\":[[10]]") != NULL);
  CHECK(NumberOf(json, "classes") == kClasses);

  tidepool_predictor predictor;
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "no attribute [sofmax]",
        tidepool_predictor_new(model, "{\"sofmax\": true}", &predictor));
  OK(tidepool_predictor_new(model, "{\"softmax\": true}", &predictor));
  static float pixels[kExamples * kPixels];
  float results[kExamples * kClasses], again[kExamples * kClasses];
  MakeImages(pixels);
  for (int i = 0; i < 3; ++i) {
    OK(tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, results,
                                  sizeof results));
  }
  const long long allocations = SystemAllocations();
  for (int i = 0; i < 10; ++i) {
    OK(tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, again,
                                  sizeof again));
  }
  CHECK(SystemAllocations() == allocations);
  CHECK(memcmp(results, again, sizeof results) == 0);
  for (int example = 0; example < kExamples; ++example) {
    float sum = 0;
    for (int i = 0; i < kClasses; ++i) sum += results[example * kClasses + i];
    CHECK(fabsf(sum - 1) < 1e-5f);
  }
  OK(tidepool_predictor_stats(predictor, &json));
  CHECK(NumberOf(json, "cycles") == 13);
  tidepool_array features, outputs;
  OK(tidepool_array_wrap(TIDEPOOL_FLOAT32, 4, (int64_t[]){kExamples, 28, 28, 1}, pixels,
                         sizeof pixels, NULL, NULL, &features));
  OK(tidepool_predictor_predict_array(predictor, features, &outputs));
  OK(tidepool_array_read(outputs, again, sizeof again));
  CHECK(memcmp(results, again, sizeof results) == 0);
  OK(tidepool_array_release(outputs));

  FAILS(TIDEPOOL_INVALID_ARGUMENT, "features are 100 bytes, expected 15680",
        tidepool_predictor_predict(predictor, pixels, 100, kExamples, results, sizeof results));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "results are 8 bytes, expected 200",
        tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, results, 8));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "examples are 0",
        tidepool_predictor_predict(predictor, pixels, 0, 0, results, 0));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "results is NULL",
        tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, NULL,
                                   sizeof results));
  tidepool_predictor small;
  OK(tidepool_predictor_new(model, "{\"budget_bytes\": 100}", &small));
  FAILS(
      TIDEPOOL_RESOURCE_EXHAUSTED, "",
      tidepool_predictor_predict(small, pixels, sizeof pixels, kExamples, results, sizeof results));
  OK(tidepool_predictor_release(small));

  OK(tidepool_model_release(model));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_model_release(model));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "",
        tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, results,
                                   sizeof results));
  OK(tidepool_predictor_release(predictor));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_predictor_release(predictor));
  OK(tidepool_array_release(features));
}

// What threads share: a model, a workspace that one of them has open, and an array that each of them releases.
static struct {
  tidepool_model model;
  tidepool_predictor predictor;
  tidepool_workspace open;
  tidepool_array array;
  float expected[kExamples * kClasses];
  int released;
} shared;

static void* Work(void* unused) {
  (void)unused;
  CHECK(strcmp(tidepool_error_message(), "") == 0);  // messages are a thread's own
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "thread", tidepool_workspace_begin(shared.open));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "nothing is open", tidepool_workspace_end(shared.open));
  static float pixels[kExamples * kPixels];
  MakeImages(pixels);
  tidepool_predictor predictor;
  OK(tidepool_predictor_new(shared.model, "{\"softmax\": true}", &predictor));
  tidepool_workspace own;
  OK(tidepool_workspace_new("own", NULL, NULL, &own));
  for (int i = 0; i < 20; ++i) {
    float results[kExamples * kClasses];
    OK(tidepool_predictor_predict(predictor, pixels, sizeof pixels, kExamples, results,
                                  sizeof results));
    CHECK(memcmp(results, shared.expected, sizeof results) == 0);
    OK(tidepool_workspace_begin(own));
    tidepool_array y;
    OK(tidepool_call("relu", NULL, &shared.array, 1, &y, 1));
    OK(tidepool_array_release(y));
    OK(tidepool_workspace_end(own));
  }
  OK(tidepool_predictor_release(predictor));
  // A cycle that is open when the thread ends ends with it.
  OK(tidepool_workspace_begin(own));
  OK(tidepool_workspace_release(own));
  return NULL;
}

// A predictor is one thread's at a time: who comes meanwhile is told, and nobody gets another one's results.
static void* UseTheSame(void* unused) {
  (void)unused;
  float pixels[kExamples * kPixels], results[kExamples * kClasses];
  MakeImages(pixels);
  for (int i = 0; i < 50; ++i) {
    const tidepool_status status = tidepool_predictor_predict(
        shared.predictor, pixels, sizeof pixels, kExamples, results, sizeof results);
    if (status == TIDEPOOL_OK) {
      CHECK(memcmp(results, shared.expected, sizeof results) == 0);
    } else {
      CHECK(status == TIDEPOOL_FAILED_PRECONDITION);
      CHECK(strstr(tidepool_error_message(), "another thread is using this predictor") != NULL);
    }
  }
  return NULL;
}

static void* Release(void* unused) {
  (void)unused;
  for (int i = 0; i < 1000; ++i) {
    tidepool_array_info info = {.struct_size = sizeof info};
    if (tidepool_array_get_info(shared.array, &info) == TIDEPOOL_OK)
      CHECK(info.elements == 64 * 64);
  }
  if (tidepool_array_release(shared.array) == TIDEPOOL_OK)
    __atomic_fetch_add(&shared.released, 1, __ATOMIC_RELAXED);
  return NULL;
}

static void OnThreads(void* (*run)(void*)) {
  enum { kThreads = 4 };
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, run, NULL) == 0);
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

void TestThreads(const char* path) {
  static float pixels[kExamples * kPixels];
  MakeImages(pixels);
  OK(tidepool_model_load(path, "host", &shared.model));
  OK(tidepool_predictor_new(shared.model, "{\"softmax\": true}", &shared.predictor));
  OK(tidepool_predictor_predict(shared.predictor, pixels, sizeof pixels, kExamples, shared.expected,
                                sizeof shared.expected));
  OnThreads(&UseTheSame);
  OK(tidepool_predictor_release(shared.predictor));
  OK(tidepool_workspace_new("open", NULL, NULL, &shared.open));
  shared.array = Ones(NULL);
  OK(tidepool_workspace_begin(shared.open));
  OnThreads(&Work);
  OK(tidepool_workspace_end(shared.open));
  OnThreads(&Release);
  CHECK(shared.released == 1);  // of four that tried
  OK(tidepool_workspace_release(shared.open));
  OK(tidepool_model_release(shared.model));
}
