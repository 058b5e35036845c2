// Tidepool for C, and for whatever calls C: arrays, operators by name, managers, workspaces, models that predict.
//
//   tidepool_workspace step;
//   tidepool_array x, y;
//   tidepool_workspace_new("step", NULL, NULL, &step);
//   for (int i = 0; i < 1000; ++i) {
//     tidepool_workspace_begin(step);                      // one cycle: what is made here lives here
//     tidepool_array_full(NULL, TIDEPOOL_FLOAT32, 2, shape, i, &x);
//     tidepool_call("softmax", "{\"axis\": 1}", &x, 1, &y, 1);
//     ...
//     tidepool_array_release(x), tidepool_array_release(y);
//     tidepool_workspace_end(step);                        // the memory stays for the next cycle
//   }
//
// Guide: docs/c_api.md. C11 or C++; 64-bit Linux. Nothing here throws or ends the program.
//
// Errors. What can fail returns a tidepool_status, TIDEPOOL_OK or the kind of error; the message is the calling thread's
// tidepool_error_message(), a few thousand bytes at most. Results are written on success only; a handle that was asked for is
// NULL otherwise, whatever was wrong (counts of more than 4194304 arrays are refused before anything is read or written).
//   INVALID_ARGUMENT     null where null has no meaning; handles of another kind, released ones, numbers that are none; names and
//                        attributes that do not exist; shapes and types that do not fit. Every function with arguments.
//   FAILED_PRECONDITION  arrays whose cycle has ended or that were closed, closed managers, workspaces open on another thread,
//                        scopes that end out of order. Every function that uses what an array, manager or workspace has.
//   RESOURCE_EXHAUSTED   no memory, a limit or a manager's budget. Every function that makes something.
// Further ones stand at the functions.
//
// Handles are names, not addresses: nobody can follow them, and one that was released is an error wherever it is used, also a
// second time to release it. Each that a function gives is the caller's, who releases it once. NULL is no handle;
// releasing it does nothing.
//
// Text that is given is UTF-8 and ends with 0; it is copied. Text in `char**` is the caller's, for tidepool_text_free().
//
// Threads: any, where nothing else is said. A handle may be used on several threads at once, and released by one of them
// meanwhile: what it names stays until the last call that uses it has returned. An array or its manager that one thread closes
// while another one is in a call with the array: the bytes go when that call is over. Writes to an array's elements must not
// race with other uses of them. Cycles and entered managers are the thread's that began them.
// THE END OF A CYCLE WAITS FOR NOBODY: arrays of a cycle may be used by other threads only while it is open, and whoever ends or
// abandons it sees to it that no other thread is in a call with one of them, or would read and write memory that is others'.
//
// fork(): a child has its parent's arrays and handles, and threads of its own for operators.
//
// Binary interface: libtidepool.so.1. Functions, enumerators and members of structs are added, never changed or removed, and
// each function has the version of its first release (TIDEPOOL_1.0). Structs begin with their size as the caller knows it,
// 4096 bytes at most: of a smaller one as much is written as there is, of a larger one, by a caller with a later header, the
// members that the library does not know are 0.
#ifndef TIDEPOOL_TOOLS_C_API_TIDEPOOL_H_
#define TIDEPOOL_TOOLS_C_API_TIDEPOOL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Grows with what is added.
#define TIDEPOOL_API_VERSION 1
#define TIDEPOOL_MAX_RANK 8

typedef struct tidepool_array_name* tidepool_array;
typedef struct tidepool_operator_name* tidepool_operator;
typedef struct tidepool_manager_name* tidepool_manager;
typedef struct tidepool_workspace_name* tidepool_workspace;
typedef struct tidepool_model_name* tidepool_model;
typedef struct tidepool_predictor_name* tidepool_predictor;

// The canonical codes of gRPC and Abseil.
typedef enum tidepool_status {
  TIDEPOOL_OK = 0,
  TIDEPOOL_CANCELLED = 1,
  TIDEPOOL_UNKNOWN = 2,
  TIDEPOOL_INVALID_ARGUMENT = 3,
  TIDEPOOL_DEADLINE_EXCEEDED = 4,
  TIDEPOOL_NOT_FOUND = 5,
  TIDEPOOL_ALREADY_EXISTS = 6,
  TIDEPOOL_PERMISSION_DENIED = 7,
  TIDEPOOL_RESOURCE_EXHAUSTED = 8,
  TIDEPOOL_FAILED_PRECONDITION = 9,
  TIDEPOOL_ABORTED = 10,
  TIDEPOOL_OUT_OF_RANGE = 11,
  TIDEPOOL_UNIMPLEMENTED = 12,
  TIDEPOOL_INTERNAL = 13,
  TIDEPOOL_UNAVAILABLE = 14,
  TIDEPOOL_DATA_LOSS = 15,
  TIDEPOOL_UNAUTHENTICATED = 16
} tidepool_status;

// Element types; the comments are their names in attributes and texts.
typedef enum tidepool_dtype {
  TIDEPOOL_FLOAT32 = 0,   // f32
  TIDEPOOL_INT64 = 1,     // i64
  TIDEPOOL_FLOAT64 = 2,   // f64
  TIDEPOOL_FLOAT16 = 3,   // f16
  TIDEPOOL_BFLOAT16 = 4,  // bf16
  TIDEPOOL_INT8 = 5,      // i8
  TIDEPOOL_UINT8 = 6,     // u8
  TIDEPOOL_INT32 = 7,     // i32
  TIDEPOOL_BOOL = 8,      // bool, a byte that is 0 or 1
  TIDEPOOL_INT16 = 9,     // i16
  TIDEPOOL_UINT16 = 10,   // u16
  TIDEPOOL_UINT32 = 11,   // u32
  TIDEPOOL_UINT64 = 12    // u64
} tidepool_dtype;

// ---- The library ----

// TIDEPOOL_API_VERSION of the library that is loaded: at least that of the header a program was compiled with.
int32_t tidepool_api_version(void);
// Of this thread's last call that failed; empty before. The library's, until the thread's next call that fails.
const char* tidepool_error_message(void);
// The same of the memory report that came with RESOURCE_EXHAUSTED: who holds what; empty with other errors.
const char* tidepool_error_report(void);
// "INVALID_ARGUMENT"; static.
const char* tidepool_status_name(tidepool_status status);
// NULL: nothing. Once for each text.
void tidepool_text_free(char* text);

// The ledger of the process as JSON: bytes by device, kind and owner, system_allocations (docs/memory_ledger.md).
tidepool_status tidepool_memory_report(char** json);
// The most bytes that may be taken from the system: of `device`, or NULL: of the process. INT64_MAX: no limit.
// Nothing is taken away, but what exceeds it is given back as far as nobody needs it.
tidepool_status tidepool_set_memory_limit(const char* device, int64_t bytes);
// How many threads operators use, 1 to 1024; by default as many as processors. Results do not depend on it.
tidepool_status tidepool_set_threads(int32_t threads);
// Kernels that the library has, a line for each operator and type.
tidepool_status tidepool_kernels(char** text);

// ---- Arrays ----
//
// `manager`: whose the array is and where it lives; NULL: the manager entered last on this thread and where that is, else the
// workspace whose cycle is open on this thread, else the heap. The bytes go with the last handle, view or tensor that
// shares them, with the cycle or manager they are in, or with tidepool_array_close(). `dims`: `rank` sizes, row-major.

// Elements are whatever the memory held.
tidepool_status tidepool_array_new(tidepool_manager manager, tidepool_dtype dtype, int32_t rank,
                                   const int64_t* dims, tidepool_array* array);
// Every element is `value`, converted.
tidepool_status tidepool_array_full(tidepool_manager manager, tidepool_dtype dtype, int32_t rank,
                                    const int64_t* dims, double value, tidepool_array* array);
// A copy of `bytes` bytes of elements, which must be as many as the shape has.
tidepool_status tidepool_array_from_data(tidepool_manager manager, tidepool_dtype dtype,
                                         int32_t rank, const int64_t* dims, const void* data,
                                         size_t bytes, tidepool_array* array);
// An array over the caller's memory, nothing copied. `release(context)`, unless NULL, runs once when the array's last user is
// gone, on whichever thread that is; not when this function fails. Aligned to its elements. The heap's, and its handles' alone.
tidepool_status tidepool_array_wrap(tidepool_dtype dtype, int32_t rank, const int64_t* dims,
                                    void* data, size_t bytes, void (*release)(void* context),
                                    void* context, tidepool_array* array);
tidepool_status tidepool_array_release(tidepool_array array);
// The bytes go now, whoever has handles and views: using those is FAILED_PRECONDITION. The handle is still to be released.
tidepool_status tidepool_array_close(tidepool_array array);

typedef struct tidepool_array_info {
  size_t struct_size;  // sizeof(tidepool_array_info), set by the caller; no more is written
  int32_t dtype;       // tidepool_dtype
  int32_t rank;
  int64_t dims[TIDEPOOL_MAX_RANK];
  int64_t strides[TIDEPOOL_MAX_RANK];  // in elements
  int64_t elements;
  char device[40];       // "host", "cuda:0"
  int32_t is_alive;      // 0: closed, or its cycle or manager has ended; the rest is what it was
  int32_t is_dense;      // row-major without gaps
  int32_t in_workspace;  // its bytes end with a cycle
  int32_t is_read_only;
} tidepool_array_info;
// Also of an array that is not alive.
tidepool_status tidepool_array_get_info(tidepool_array array, tidepool_array_info* info);

// The first element on the host, valid as long as the bytes. Dense arrays only: FAILED_PRECONDITION for views with gaps (copy them
// first). Of an array on a device: a copy on the host, brought up to date now.
tidepool_status tidepool_array_data(tidepool_array array, const void** data);
// The same to write to. Who keeps the pointer and writes again after an operator has used the array asks for it again.
tidepool_status tidepool_array_mutable_data(tidepool_array array, void** data);
// All elements, row-major, of any view on any device. `bytes` must be as many as they are.
tidepool_status tidepool_array_read(tidepool_array array, void* data, size_t bytes);
tidepool_status tidepool_array_write(tidepool_array array, const void* data, size_t bytes);

// The array on the heap and its handles' alone, so that no cycle and no manager ends it: the same array where it is so
// already, else a copy.
tidepool_status tidepool_array_detach(tidepool_array array, tidepool_array* detached);
// A dense copy that is `manager`'s and lives where it says: also the way to another device.
tidepool_status tidepool_array_copy(tidepool_array array, tidepool_manager manager,
                                    tidepool_array* copy);
// As NumPy prints it.
tidepool_status tidepool_array_to_text(tidepool_array array, char** text);

// DLPack (https://dmlc.github.io/dlpack), nothing copied: with NumPy's from_dlpack, PyTorch and others. A tensor given away
// keeps the bytes until its deleter is called, whatever is closed meanwhile; so arrays of a workspace are
// FAILED_PRECONDITION: detach them, or ask for a copy. One taken over belongs to the array, whose last user calls its
// deleter, on any thread; when the function fails it is still the caller's.
struct DLManagedTensor;
struct DLManagedTensorVersioned;
#define TIDEPOOL_DLPACK_READ_ONLY 1u  // of versioned tensors: who takes it does not write
#define TIDEPOOL_DLPACK_COPY 2u       // of a copy, which is the taker's alone
// `stream`: what __dlpack__(stream=...) is given; NULL: nothing. UNIMPLEMENTED for devices that DLPack does not know.
tidepool_status tidepool_array_to_dlpack(tidepool_array array, const int64_t* stream,
                                         uint32_t flags, struct DLManagedTensor** tensor);
tidepool_status tidepool_array_to_dlpack_versioned(tidepool_array array, const int64_t* stream,
                                                   uint32_t flags,
                                                   struct DLManagedTensorVersioned** tensor);
// `stream`: the producer's. UNIMPLEMENTED for element types and devices that the library has not.
tidepool_status tidepool_array_from_dlpack(struct DLManagedTensor* tensor, const int64_t* stream,
                                           tidepool_array* array);
tidepool_status tidepool_array_from_dlpack_versioned(struct DLManagedTensorVersioned* tensor,
                                                     const int64_t* stream, tidepool_array* array);

// ---- Operators ----
//
// By name, with attributes as a JSON object: {"axis": -1, "keep_dims": true}; NULL or "": none. Attributes that are not given
// have their defaults; unknown ones are errors that name those there are, one that is there twice is an error, too. Numbers that
// JSON has not are "nan", "inf" and "-inf", where a number need not be whole. `inputs` in the operator's order; NULL for an
// optional one that is absent. `outputs` does not overlap it. Results live and are owned as new arrays are; views ("reshape",
// "slice") share their input's bytes.

// All of them as JSON: [{"name": "softmax", "inputs": ["X"], "outputs": ["Z"], "attributes": [{"name": "axis", "type": "int",
// "default": -1}]}, ...]. An input that ends with "?" may be absent; "..." stands for any number of them.
tidepool_status tidepool_operators(char** json);
// Attributes are read once, so that running it costs no parsing. NOT_FOUND: no operator of that name.
tidepool_status tidepool_operator_new(const char* name, const char* attributes,
                                      tidepool_operator* result);
tidepool_status tidepool_operator_release(tidepool_operator operation);
// `output_count` must be the number of results. UNIMPLEMENTED: no kernel for these types on that device.
tidepool_status tidepool_operator_run(tidepool_operator operation, const tidepool_array* inputs,
                                      size_t input_count, tidepool_array* outputs,
                                      size_t output_count);
// Results are written to arrays that there are, of the results' shapes; floats of other types are converted. Where an
// operator cannot compute there, it computes beside and copies. In place ("sgd_update"): what is updated.
tidepool_status tidepool_operator_run_into(tidepool_operator operation,
                                           const tidepool_array* inputs, size_t input_count,
                                           const tidepool_array* outputs, size_t output_count);
// tidepool_operator_new, _run and _release in one.
tidepool_status tidepool_call(const char* name, const char* attributes,
                              const tidepool_array* inputs, size_t input_count,
                              tidepool_array* outputs, size_t output_count);

// ---- Managers ----
//
// A manager owns arrays and the managers below it: closing it closes them, whoever has handles (docs/managers.md).

// Below `parent`; NULL: below the process. `device`: where its arrays live, "host", "cuda:1"; NULL: the parent's. UNIMPLEMENTED
// when an array is made for a device that the library has not.
tidepool_status tidepool_manager_new(tidepool_manager parent, const char* name, const char* device,
                                     tidepool_manager* manager);
// Closes it, too.
tidepool_status tidepool_manager_release(tidepool_manager manager);
// Arrays, managers below and all; again: nothing. The handle is still to be released.
tidepool_status tidepool_manager_close(tidepool_manager manager);
// The array, with its views, becomes the manager's.
tidepool_status tidepool_manager_attach(tidepool_manager manager, tidepool_array array);
// It is the manager's until that closes, then again whose it was.
tidepool_status tidepool_manager_lend(tidepool_manager manager, tidepool_array array);
// It becomes the manager's parent's; of a manager directly below the process: its handles'. What is lent to the manager is
// again whose it was. FAILED_PRECONDITION: neither the manager's nor lent to it.
tidepool_status tidepool_manager_return(tidepool_manager manager, tidepool_array array);
// What is made on this thread from here on is the manager's, until _leave. In the order of scopes, cycles of workspaces among
// them: else FAILED_PRECONDITION, and nothing has changed. INVALID_ARGUMENT for what is no manager's handle, NULL too.
tidepool_status tidepool_manager_enter(tidepool_manager manager);
tidepool_status tidepool_manager_leave(tidepool_manager manager);
// Of its arrays and those below it; before it has managers below. RESOURCE_EXHAUSTED for what would exceed it.
tidepool_status tidepool_manager_set_budget(tidepool_manager manager, int64_t bytes);

typedef struct tidepool_manager_info {
  size_t struct_size;  // sizeof(tidepool_manager_info), set by the caller
  int64_t arrays;      // attached, without those of managers below
  int64_t bytes;
  int64_t loans;
  int32_t is_open;
  int32_t reserved;
} tidepool_manager_info;
tidepool_status tidepool_manager_get_info(tidepool_manager manager, tidepool_manager_info* info);
// It and all below it as JSON: [{"path": ..., "arrays": ..., "bytes": ..., "peak_bytes": ..., ...}], parents first.
tidepool_status tidepool_manager_report(tidepool_manager manager, char** json);

// ---- Workspaces ----
//
// Memory that is learned in one cycle and only reused in the following ones (docs/workspaces.md).

// `config`: JSON of what differs from the defaults: {"max_size": 1048576, "policy_learning": "kOptimized"}; names and values are
// those of WorkspaceConfig (memory/workspace/workspace_config.h). NULL or "": all defaults. `device`: NULL: the host.
// `name`: of a component, not of a request: each new one stays on the ledger.
tidepool_status tidepool_workspace_new(const char* name, const char* config, const char* device,
                                       tidepool_workspace* workspace);
// While its cycle is open: it goes when that ends.
tidepool_status tidepool_workspace_release(tidepool_workspace workspace);
// A cycle begins, on this thread; within it: nests, the cycle goes on.
tidepool_status tidepool_workspace_begin(tidepool_workspace workspace);
// It ends: arrays in it are no longer alive, their memory stays for the next cycle. In the order of scopes. Not while another
// thread is in a call with one of them.
tidepool_status tidepool_workspace_end(tidepool_workspace workspace);
// The same of a cycle that was left half-way by an error: nothing is learned from it.
tidepool_status tidepool_workspace_abandon(tidepool_workspace workspace);
// Counters and sizes as JSON: {"cycles": 10, "hits": 120, "misses": 0, "spills": 12, "planned_peak_bytes": ...}, those of
// WorkspaceStats.
tidepool_status tidepool_workspace_stats(tidepool_workspace workspace, char** json);
// Gives back what the next cycle does not need. It must be closed.
tidepool_status tidepool_workspace_trim(tidepool_workspace workspace);
// Gives back everything and forgets what was learned. It must be closed.
tidepool_status tidepool_workspace_reset(tidepool_workspace workspace);

// ---- Models ----

// From a file that `tidepool train` or SaveModel wrote. `device`: NULL: the host. NOT_FOUND and other codes of the file;
// DATA_LOSS: it is broken, no model, or larger than strangers' models may be.
tidepool_status tidepool_model_load(const char* path, const char* device, tidepool_model* model);
// Predictors of it end with it: using one is FAILED_PRECONDITION then. While one of them is in a call: FAILED_PRECONDITION, and
// nothing is released; try again.
tidepool_status tidepool_model_release(tidepool_model model);
// {"name": ..., "classes": ..., "inputs": [{"name": ..., "shape": [28, 28, 1], "dtype": "f32"}], "outputs": [[10]], "parameters":
// ..., "layers": ..., "notes": {...}}, shapes of one example.
tidepool_status tidepool_model_describe(tidepool_model model, char** json);

// For requests of one thread at a time; any number of them for a model. `options`: {"softmax": true} appends softmax to the
// network's output, {"budget_bytes": n} limits what a call may own; NULL or "": neither.
tidepool_status tidepool_predictor_new(tidepool_model model, const char* options,
                                       tidepool_predictor* predictor);
tidepool_status tidepool_predictor_release(tidepool_predictor predictor);
// `examples` of them, row-major, of the model's input type, one behind the other; their results, f32 or the model's own type, to
// the caller's memory. Sizes in bytes must fit. The input is not copied on the host. From the second call of a shape on
// nothing is taken from the system. FAILED_PRECONDITION while another thread is in it.
tidepool_status tidepool_predictor_predict(tidepool_predictor predictor, const void* features,
                                           size_t features_bytes, int64_t examples, void* results,
                                           size_t results_bytes);
// The same of an array [examples, ...]; the result is a new array.
tidepool_status tidepool_predictor_predict_array(tidepool_predictor predictor,
                                                 tidepool_array features, tidepool_array* results);
// Of its workspace, as tidepool_workspace_stats.
tidepool_status tidepool_predictor_stats(tidepool_predictor predictor, char** json);

#ifdef __cplusplus
}
#endif

#endif  // TIDEPOOL_TOOLS_C_API_TIDEPOOL_H_
