// Every function of tidepool.h, used rightly and wrongly, by a program in C that is linked with the shared library.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tidepool/tools/c_api/check.h"
#include "tidepool/tools/c_api/tidepool.h"

static const int64_t k23[] = {2, 3};
static const float kSix[] = {1, 2, 3, 4, 5, 6};

static tidepool_array Six(tidepool_manager manager) {
  tidepool_array array;
  OK(tidepool_array_from_data(manager, TIDEPOOL_FLOAT32, 2, k23, kSix, sizeof kSix, &array));
  return array;
}

static void ExpectFloats(tidepool_array array, const float* expected, size_t count) {
  float found[64];
  OK(tidepool_array_read(array, found, count * sizeof(float)));
  for (size_t i = 0; i < count; ++i) CHECK(fabsf(found[i] - expected[i]) <= 1e-6f);
}

static void TestLibrary(void) {
  CHECK(tidepool_api_version() == TIDEPOOL_API_VERSION);
  CHECK(strcmp(tidepool_error_message(), "") == 0 && strcmp(tidepool_error_report(), "") == 0);
  CHECK(strcmp(tidepool_status_name(TIDEPOOL_DATA_LOSS), "DATA_LOSS") == 0);
  CHECK(strcmp(tidepool_status_name((tidepool_status)17), "no status") == 0);
  tidepool_text_free(NULL);
  char* text;
  OK(tidepool_kernels(&text));
  CHECK(strstr(text, "matmul") != NULL && strstr(text, "xnnpack") != NULL);  // kernels are linked
  tidepool_text_free(text);
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "text is NULL", tidepool_kernels(NULL));
  OK(tidepool_set_threads(2));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "threads are 0", tidepool_set_threads(0));
  OK(tidepool_memory_report(&text));
  CHECK(strstr(text, "\"system_allocations\"") != NULL && strstr(text, "\"host\"") != NULL);
  tidepool_text_free(text);
}

static int releases = 0;
static void CountRelease(void* context) { releases += *(const int*)context; }

static void TestArrays(void) {
  tidepool_array x = Six(NULL), y;
  tidepool_array_info info = {.struct_size = sizeof info};
  OK(tidepool_array_get_info(x, &info));
  CHECK(info.dtype == TIDEPOOL_FLOAT32 && info.rank == 2 && info.dims[0] == 2 && info.dims[1] == 3);
  CHECK(info.strides[0] == 3 && info.elements == 6 && info.is_alive && info.is_dense);
  CHECK(!info.in_workspace && !info.is_read_only && strcmp(info.device, "host") == 0);
  info.struct_size = 8;
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "struct_size is 8", tidepool_array_get_info(x, &info));
  // A caller with a later header: what it has more and the library does not know is 0, whatever was there.
  struct {
    tidepool_array_info now;
    int64_t later[2];
    int64_t beyond;
  } larger = {.now = {.struct_size = sizeof larger - 8}, .later = {77, -1}, .beyond = 78};
  OK(tidepool_array_get_info(x, &larger.now));
  CHECK(larger.now.elements == 6 && larger.now.struct_size == sizeof larger - 8);
  CHECK(larger.later[0] == 0 && larger.later[1] == 0 && larger.beyond == 78);
  // One that forgot to set the size, which then is anything.
  larger.now.struct_size = 4097, larger.later[0] = 77;
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "struct_size is 4097, expected 208 to 4096",
        tidepool_array_get_info(x, &larger.now));
  CHECK(larger.later[0] == 77);
  larger.now.struct_size = (size_t)-1;
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "struct_size is", tidepool_array_get_info(x, &larger.now));

  const void* data;
  OK(tidepool_array_data(x, &data));
  CHECK(memcmp(data, kSix, sizeof kSix) == 0);
  void* writable;
  OK(tidepool_array_mutable_data(x, &writable));
  ((float*)writable)[0] = 10;
  const float changed[] = {10, 2, 3, 4, 5, 6};
  ExpectFloats(x, changed, 6);
  OK(tidepool_array_write(x, kSix, sizeof kSix));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "data are 23 bytes, expected 24",
        tidepool_array_write(x, kSix, 23));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "data is NULL", tidepool_array_read(x, NULL, sizeof kSix));

  // Views: no dense data; read and written all the same.
  OK(tidepool_call("transpose", NULL, &x, 1, &y, 1));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "view with gaps", tidepool_array_data(y, &data));
  CHECK(data == NULL);
  const float turned[] = {1, 4, 2, 5, 3, 6};
  ExpectFloats(y, turned, 6);
  OK(tidepool_array_write(y, kSix, sizeof kSix));
  const float back[] = {1, 3, 5, 2, 4, 6};
  ExpectFloats(x, back, 6);
  tidepool_array dense;
  OK(tidepool_array_copy(y, NULL, &dense));
  OK(tidepool_array_data(dense, &data));
  CHECK(((const float*)data)[1] == 2);
  char* text;
  OK(tidepool_array_to_text(dense, &text));
  CHECK(strcmp(text, "[[1., 2.],\n [3., 4.],\n [5., 6.]]") == 0);
  tidepool_text_free(text);
  OK(tidepool_array_release(dense));

  // Closed: dead for all handles, which are still to be released.
  OK(tidepool_array_close(x));
  FAILS(TIDEPOOL_FAILED_PRECONDITION, "",
        tidepool_array_read(y, back != NULL ? &(float[6]){0} : NULL, 24));
  info.struct_size = sizeof info;
  OK(tidepool_array_get_info(y, &info));
  CHECK(!info.is_alive && info.elements == 6);
  OK(tidepool_array_close(x));
  OK(tidepool_array_release(x));
  OK(tidepool_array_release(y));
  // Released: no handle of anything any more.
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "tidepool_array_release: a handle that was released",
        tidepool_array_release(x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "tidepool_array_data: a handle that was released",
        tidepool_array_data(y, &data));
  tidepool_array z = Six(NULL);  // in the same place
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_array_close(x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_array_close(y));
  OK(tidepool_array_release(NULL));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "the array is NULL", tidepool_array_close(NULL));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "no handle of this library",
        tidepool_array_close((tidepool_array)&z));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "a handle of the kind array, expected one of the kind manager",
        tidepool_manager_close((tidepool_manager)z));
  OK(tidepool_array_release(z));

  const double half = 0.5;
  OK(tidepool_array_full(NULL, TIDEPOOL_FLOAT64, 0, NULL, half, &x));
  double one = 0;
  OK(tidepool_array_read(x, &one, sizeof one));
  CHECK(one == half);
  OK(tidepool_array_release(x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "rank is 9",
        tidepool_array_new(NULL, TIDEPOOL_INT8, 9, k23, &x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "dims is NULL",
        tidepool_array_new(NULL, TIDEPOOL_INT8, 1, NULL, &x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "dtype is 13",
        tidepool_array_new(NULL, (tidepool_dtype)13, 2, k23, &x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "",
        tidepool_array_new(NULL, TIDEPOOL_INT8, 1, (int64_t[]){-1}, &x));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "array is NULL",
        tidepool_array_new(NULL, TIDEPOOL_INT8, 2, k23, NULL));
  const uint8_t no_bools[] = {0, 1, 2, 0, 0, 0};
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "element 2 is 2",
        tidepool_array_from_data(NULL, TIDEPOOL_BOOL, 2, k23, no_bools, sizeof no_bools, &x));
  CHECK(x == NULL);

  // The caller's memory.
  float mine[6] = {0};
  const int weight = 3;
  OK(tidepool_array_wrap(TIDEPOOL_FLOAT32, 2, k23, mine, sizeof mine, &CountRelease, (void*)&weight,
                         &x));
  OK(tidepool_array_write(x, kSix, sizeof kSix));
  CHECK(mine[5] == 6);
  OK(tidepool_call("reshape", "{\"shape\": [6]}", &x, 1, &y, 1));
  OK(tidepool_array_release(x));
  CHECK(releases == 0);
  OK(tidepool_array_release(y));
  CHECK(releases == 3);
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "not aligned",
        tidepool_array_wrap(TIDEPOOL_FLOAT32, 1, (int64_t[]){1}, (char*)mine + 1, 4, &CountRelease,
                            (void*)&weight, &x));
  CHECK(releases == 3);
}

static void TestDlpack(void) {
  tidepool_array x = Six(NULL), y;
  struct DLManagedTensor* tensor;
  OK(tidepool_array_to_dlpack(x, NULL, 0, &tensor));
  const void *before, *after;
  OK(tidepool_array_data(x, &before));
  OK(tidepool_array_release(x));  // the tensor keeps the bytes
  OK(tidepool_array_from_dlpack(tensor, NULL, &y));
  OK(tidepool_array_data(y, &after));
  CHECK(before == after);
  struct DLManagedTensorVersioned* versioned;
  OK(tidepool_array_to_dlpack_versioned(y, NULL, TIDEPOOL_DLPACK_READ_ONLY | TIDEPOOL_DLPACK_COPY,
                                        &versioned));
  OK(tidepool_array_from_dlpack_versioned(versioned, NULL, &x));
  ExpectFloats(x, kSix, 6);
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "flags are 1",
        tidepool_array_to_dlpack(y, NULL, TIDEPOOL_DLPACK_READ_ONLY, &tensor));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "tensor is NULL", tidepool_array_from_dlpack(NULL, NULL, &x));
  CHECK(x == NULL);
  OK(tidepool_array_release(y));
}

static void TestOperators(void) {
  tidepool_array x = Six(NULL), y, z, pair[2];
  OK(tidepool_call("sum", "{\"axes\": [0], \"keep_dims\": true}", &x, 1, &y, 1));
  const float sums[] = {5, 7, 9};
  ExpectFloats(y, sums, 3);
  const tidepool_array both[] = {x, y};
  OK(tidepool_call("add", "", both, 2, &z, 1));  // broadcast
  const float added[] = {6, 9, 12, 9, 12, 15};
  ExpectFloats(z, added, 6);

  // With attributes read once; an absent operand; results to what there is.
  tidepool_operator product;
  OK(tidepool_operator_new("matmul", "{\"transpose_y\": true}", &product));
  const tidepool_array operands[] = {x, y, NULL};
  tidepool_array w;
  OK(tidepool_operator_run(product, operands, 3, &w, 1));
  const float dots[] = {5 + 14 + 27, 20 + 35 + 54};
  ExpectFloats(w, dots, 2);
  tidepool_array there;
  OK(tidepool_array_full(NULL, TIDEPOOL_FLOAT32, 2, (int64_t[]){2, 1}, 0, &there));
  OK(tidepool_operator_run_into(product, operands, 2, &there, 1));
  ExpectFloats(there, dots, 2);
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "", tidepool_operator_run_into(product, operands, 2, &x, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "1 inputs, expected X,Y,bias?",
        tidepool_operator_run(product, operands, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "2 outputs, expected Z",
        tidepool_operator_run(product, operands, 2, pair, 2));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "the array is NULL",
        tidepool_operator_run(product, (tidepool_array[]){x, NULL}, 2, &z, 1));
  OK(tidepool_operator_release(product));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_operator_release(product));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "released", tidepool_operator_run(product, operands, 2, &z, 1));

  // One that computes beside and copies, with types of floats converted; several results; in place.
  tidepool_operator softmax;
  OK(tidepool_operator_new("softmax", NULL, &softmax));
  tidepool_array doubles;
  OK(tidepool_array_full(NULL, TIDEPOOL_FLOAT64, 2, k23, 0, &doubles));
  OK(tidepool_operator_run_into(softmax, &x, 1, &doubles, 1));
  double row[6];
  OK(tidepool_array_read(doubles, row, sizeof row));
  CHECK(fabs(row[0] + row[1] + row[2] - 1) < 1e-6);
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "the output is [2, 1], expected [2, 3]",
        tidepool_operator_run_into(softmax, &x, 1, &there, 1));
  OK(tidepool_operator_release(softmax));
  OK(tidepool_call("top_k", "{\"k\": 2}", &x, 1, pair, 2));
  const float top[] = {3, 2, 6, 5};
  ExpectFloats(pair[0], top, 4);
  OK(tidepool_array_release(pair[0]));
  OK(tidepool_array_release(pair[1]));
  OK(tidepool_call("split", "{\"sizes\": [1, 2], \"axis\": 1}", &x, 1, pair, 2));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "1 outputs, expected 2",
        tidepool_call("split", "{\"sizes\": [1, 2], \"axis\": 1}", &x, 1, &z, 1));
  OK(tidepool_array_release(pair[0]));
  OK(tidepool_array_release(pair[1]));
  tidepool_operator sgd;
  OK(tidepool_operator_new("sgd_update", "{\"learning_rate\": 0.5}", &sgd));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "tidepool_operator_run_into",
        tidepool_operator_run(sgd, &x, 1, &z, 1));
  tidepool_array parameters = Six(NULL);
  OK(tidepool_operator_run_into(sgd, &x, 1, &parameters, 1));
  const float stepped[] = {0.5f, 1, 1.5f, 2, 2.5f, 3};
  ExpectFloats(parameters, stepped, 6);
  OK(tidepool_operator_release(sgd));

  // What is wrong is named.
  FAILS(TIDEPOOL_NOT_FOUND, "no operator [sotfmax]", tidepool_call("sotfmax", NULL, &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "operator [softmax]: no attribute [axes]; there are [axis]",
        tidepool_call("softmax", "{\"axes\": 1}", &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "expected a JSON object",
        tidepool_call("softmax", "axis=1", &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "attribute [axis] is \"last\", expected a whole number",
        tidepool_call("softmax", "{\"axis\": \"last\"}", &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "attribute [dtype] is missing",
        tidepool_call("cast", NULL, &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "", tidepool_call("softmax", "{\"axis\": 7}", &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "",
        tidepool_call("bitwise_and", NULL, both, 2, &z, 1));  // of floats
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "name is NULL", tidepool_call(NULL, NULL, &x, 1, &z, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "outputs is NULL", tidepool_call("relu", NULL, &x, 1, NULL, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "inputs is NULL", tidepool_call("relu", NULL, NULL, 1, &z, 1));
  CHECK(z == NULL);
  char* json;
  OK(tidepool_operators(&json));
  CHECK(strstr(json,
               "{\"name\":\"softmax\",\"inputs\":[\"X\"],\"outputs\":[\"Z\"],\"attributes\":[{"
               "\"name\":\"axis\","
               "\"type\":\"int\",\"default\":-1}]}") != NULL);
  tidepool_text_free(json);
  tidepool_array all[] = {x, y, w, there, doubles, parameters};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) OK(tidepool_array_release(all[i]));
}

// Whatever is wrong: what was asked for is NULL, and the message is no longer than one can read.
static void TestWrongCalls(void) {
  tidepool_array x = Six(NULL);
  tidepool_operator released;
  OK(tidepool_operator_new("relu", NULL, &released));
  OK(tidepool_operator_release(released));
  char attributes[1 << 14] = "{\"";
  memset(attributes + 2, 'n', sizeof attributes - 3);
  memcpy(attributes + sizeof attributes - 5, "\":1}", 5);
  tidepool_array pair[2];
#define IS_NULL_AFTER(status, part, call)           \
  do {                                              \
    pair[0] = pair[1] = x;                          \
    FAILS(status, part, call);                      \
    CHECK(pair[0] == NULL && pair[1] == NULL);      \
    CHECK(strlen(tidepool_error_message()) < 5000); \
  } while (0)
  IS_NULL_AFTER(TIDEPOOL_NOT_FOUND, "no operator [nope]",
                tidepool_call("nope", NULL, &x, 1, pair, 2));
  IS_NULL_AFTER(TIDEPOOL_NOT_FOUND, "no operator [{\\\"nnn",
                tidepool_call(attributes, NULL, &x, 1, pair, 2));
  IS_NULL_AFTER(TIDEPOOL_INVALID_ARGUMENT, "name is NULL",
                tidepool_call(NULL, NULL, &x, 1, pair, 2));
  IS_NULL_AFTER(TIDEPOOL_INVALID_ARGUMENT, "expected a JSON object",
                tidepool_call("relu", "{", &x, 1, pair, 2));
  IS_NULL_AFTER(TIDEPOOL_INVALID_ARGUMENT, "nnn...]; there are none",
                tidepool_call("relu", attributes, &x, 1, pair, 2));
  IS_NULL_AFTER(TIDEPOOL_INVALID_ARGUMENT, "released",
                tidepool_operator_run(released, &x, 1, pair, 2));
#undef IS_NULL_AFTER
  const size_t too_many = (size_t)-1;
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "outputs, expected at most",
        tidepool_call("relu", NULL, &x, 1, pair, too_many));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "inputs, expected at most",
        tidepool_call("concat", "{\"axis\": 0}", &x, too_many, pair, 1));
  FAILS(TIDEPOOL_INVALID_ARGUMENT, "outputs is NULL", tidepool_call("nope", NULL, &x, 1, NULL, 1));
  // Of a message that quotes a path: bounded, too.
  tidepool_model model;
  CHECK(tidepool_model_load(attributes, NULL, &model) != TIDEPOOL_OK);
  CHECK(strlen(tidepool_error_message()) < 5000);
  OK(tidepool_array_release(x));
}

void TestOwners(void);  // c_api_owners_test.c
void TestModels(const char* path);
void TestThreads(const char* path);
void TestRaces(const char* path);  // c_api_races_test.c

int main(int argc, char** argv) {
  CHECK(argc == 2);
  TestLibrary();
  TestArrays();
  TestDlpack();
  TestOperators();
  TestWrongCalls();
  TestOwners();
  TestModels(argv[1]);
  TestThreads(argv[1]);
  TestRaces(argv[1]);
  puts("passed");
  return 0;
}
