// The binary interface of TIDEPOOL_1.0, as it was released: compiled beside tidepool.h as it is now. What is added there comes
// behind; a line here is never changed. tools/c_api/abi_test.sh compares the library's symbols with exported_symbols.txt.
#include <stddef.h>
#include <stdint.h>

#include "tidepool/tools/c_api/tidepool.h"

_Static_assert(TIDEPOOL_API_VERSION >= 1, "versions grow");
_Static_assert(sizeof(tidepool_status) == 4 && sizeof(tidepool_dtype) == 4,
               "enumerations are ints");
_Static_assert(sizeof(tidepool_array) == 8 && sizeof(tidepool_operator) == 8 &&
                   sizeof(tidepool_manager) == 8 && sizeof(tidepool_workspace) == 8 &&
                   sizeof(tidepool_model) == 8 && sizeof(tidepool_predictor) == 8,
               "handles are words");

_Static_assert(TIDEPOOL_OK == 0, "TIDEPOOL_OK");
_Static_assert(TIDEPOOL_CANCELLED == 1, "TIDEPOOL_CANCELLED");
_Static_assert(TIDEPOOL_UNKNOWN == 2, "TIDEPOOL_UNKNOWN");
_Static_assert(TIDEPOOL_INVALID_ARGUMENT == 3, "TIDEPOOL_INVALID_ARGUMENT");
_Static_assert(TIDEPOOL_DEADLINE_EXCEEDED == 4, "TIDEPOOL_DEADLINE_EXCEEDED");
_Static_assert(TIDEPOOL_NOT_FOUND == 5, "TIDEPOOL_NOT_FOUND");
_Static_assert(TIDEPOOL_ALREADY_EXISTS == 6, "TIDEPOOL_ALREADY_EXISTS");
_Static_assert(TIDEPOOL_PERMISSION_DENIED == 7, "TIDEPOOL_PERMISSION_DENIED");
_Static_assert(TIDEPOOL_RESOURCE_EXHAUSTED == 8, "TIDEPOOL_RESOURCE_EXHAUSTED");
_Static_assert(TIDEPOOL_FAILED_PRECONDITION == 9, "TIDEPOOL_FAILED_PRECONDITION");
_Static_assert(TIDEPOOL_ABORTED == 10, "TIDEPOOL_ABORTED");
_Static_assert(TIDEPOOL_OUT_OF_RANGE == 11, "TIDEPOOL_OUT_OF_RANGE");
_Static_assert(TIDEPOOL_UNIMPLEMENTED == 12, "TIDEPOOL_UNIMPLEMENTED");
_Static_assert(TIDEPOOL_INTERNAL == 13, "TIDEPOOL_INTERNAL");
_Static_assert(TIDEPOOL_UNAVAILABLE == 14, "TIDEPOOL_UNAVAILABLE");
_Static_assert(TIDEPOOL_DATA_LOSS == 15, "TIDEPOOL_DATA_LOSS");
_Static_assert(TIDEPOOL_UNAUTHENTICATED == 16, "TIDEPOOL_UNAUTHENTICATED");
_Static_assert(TIDEPOOL_FLOAT32 == 0, "TIDEPOOL_FLOAT32");
_Static_assert(TIDEPOOL_INT64 == 1, "TIDEPOOL_INT64");
_Static_assert(TIDEPOOL_FLOAT64 == 2, "TIDEPOOL_FLOAT64");
_Static_assert(TIDEPOOL_FLOAT16 == 3, "TIDEPOOL_FLOAT16");
_Static_assert(TIDEPOOL_BFLOAT16 == 4, "TIDEPOOL_BFLOAT16");
_Static_assert(TIDEPOOL_INT8 == 5, "TIDEPOOL_INT8");
_Static_assert(TIDEPOOL_UINT8 == 6, "TIDEPOOL_UINT8");
_Static_assert(TIDEPOOL_INT32 == 7, "TIDEPOOL_INT32");
_Static_assert(TIDEPOOL_BOOL == 8, "TIDEPOOL_BOOL");
_Static_assert(TIDEPOOL_INT16 == 9, "TIDEPOOL_INT16");
_Static_assert(TIDEPOOL_UINT16 == 10, "TIDEPOOL_UINT16");
_Static_assert(TIDEPOOL_UINT32 == 11, "TIDEPOOL_UINT32");
_Static_assert(TIDEPOOL_UINT64 == 12, "TIDEPOOL_UINT64");
_Static_assert(TIDEPOOL_MAX_RANK == 8, "TIDEPOOL_MAX_RANK");
_Static_assert(TIDEPOOL_DLPACK_READ_ONLY == 1 && TIDEPOOL_DLPACK_COPY == 2, "flags");

// tidepool_array_info: members where they were; new ones behind.
_Static_assert(offsetof(tidepool_array_info, struct_size) == 0, "tidepool_array_info.struct_size");
_Static_assert(offsetof(tidepool_array_info, dtype) == 8, "tidepool_array_info.dtype");
_Static_assert(offsetof(tidepool_array_info, rank) == 12, "tidepool_array_info.rank");
_Static_assert(offsetof(tidepool_array_info, dims) == 16, "tidepool_array_info.dims");
_Static_assert(offsetof(tidepool_array_info, strides) == 80, "tidepool_array_info.strides");
_Static_assert(offsetof(tidepool_array_info, elements) == 144, "tidepool_array_info.elements");
_Static_assert(offsetof(tidepool_array_info, device) == 152, "tidepool_array_info.device");
_Static_assert(offsetof(tidepool_array_info, is_alive) == 192, "tidepool_array_info.is_alive");
_Static_assert(offsetof(tidepool_array_info, is_dense) == 196, "tidepool_array_info.is_dense");
_Static_assert(offsetof(tidepool_array_info, in_workspace) == 200,
               "tidepool_array_info.in_workspace");
_Static_assert(offsetof(tidepool_array_info, is_read_only) == 204,
               "tidepool_array_info.is_read_only");
_Static_assert(sizeof(tidepool_array_info) >= 208, "tidepool_array_info");
// tidepool_manager_info: members where they were; new ones behind.
_Static_assert(offsetof(tidepool_manager_info, struct_size) == 0,
               "tidepool_manager_info.struct_size");
_Static_assert(offsetof(tidepool_manager_info, arrays) == 8, "tidepool_manager_info.arrays");
_Static_assert(offsetof(tidepool_manager_info, bytes) == 16, "tidepool_manager_info.bytes");
_Static_assert(offsetof(tidepool_manager_info, loans) == 24, "tidepool_manager_info.loans");
_Static_assert(offsetof(tidepool_manager_info, is_open) == 32, "tidepool_manager_info.is_open");
_Static_assert(offsetof(tidepool_manager_info, reserved) == 36, "tidepool_manager_info.reserved");
_Static_assert(sizeof(tidepool_manager_info) >= 40, "tidepool_manager_info");

// Pointers to other types of functions do not compile (-Werror).
int32_t (*const abi_api_version)(void) = &tidepool_api_version;
const char* (*const abi_error_message)(void) = &tidepool_error_message;
const char* (*const abi_error_report)(void) = &tidepool_error_report;
const char* (*const abi_status_name)(tidepool_status) = &tidepool_status_name;
void (*const abi_text_free)(char*) = &tidepool_text_free;
tidepool_status (*const abi_memory_report)(char**) = &tidepool_memory_report;
tidepool_status (*const abi_set_memory_limit)(const char*, int64_t) = &tidepool_set_memory_limit;
tidepool_status (*const abi_set_threads)(int32_t) = &tidepool_set_threads;
tidepool_status (*const abi_kernels)(char**) = &tidepool_kernels;
tidepool_status (*const abi_array_new)(tidepool_manager, tidepool_dtype, int32_t, const int64_t*,
                                       tidepool_array*) = &tidepool_array_new;
tidepool_status (*const abi_array_full)(tidepool_manager, tidepool_dtype, int32_t, const int64_t*,
                                        double, tidepool_array*) = &tidepool_array_full;
tidepool_status (*const abi_array_from_data)(tidepool_manager, tidepool_dtype, int32_t,
                                             const int64_t*, const void*, size_t,
                                             tidepool_array*) = &tidepool_array_from_data;
tidepool_status (*const abi_array_wrap)(tidepool_dtype, int32_t, const int64_t*, void*, size_t,
                                        void (*)(void*), void*,
                                        tidepool_array*) = &tidepool_array_wrap;
tidepool_status (*const abi_array_release)(tidepool_array) = &tidepool_array_release;
tidepool_status (*const abi_array_close)(tidepool_array) = &tidepool_array_close;
tidepool_status (*const abi_array_get_info)(tidepool_array,
                                            tidepool_array_info*) = &tidepool_array_get_info;
tidepool_status (*const abi_array_data)(tidepool_array, const void**) = &tidepool_array_data;
tidepool_status (*const abi_array_mutable_data)(tidepool_array,
                                                void**) = &tidepool_array_mutable_data;
tidepool_status (*const abi_array_read)(tidepool_array, void*, size_t) = &tidepool_array_read;
tidepool_status (*const abi_array_write)(tidepool_array, const void*,
                                         size_t) = &tidepool_array_write;
tidepool_status (*const abi_array_detach)(tidepool_array, tidepool_array*) = &tidepool_array_detach;
tidepool_status (*const abi_array_copy)(tidepool_array, tidepool_manager,
                                        tidepool_array*) = &tidepool_array_copy;
tidepool_status (*const abi_array_to_text)(tidepool_array, char**) = &tidepool_array_to_text;
tidepool_status (*const abi_array_to_dlpack)(tidepool_array, const int64_t*, uint32_t,
                                             struct DLManagedTensor**) = &tidepool_array_to_dlpack;
tidepool_status (*const abi_array_to_dlpack_versioned)(tidepool_array, const int64_t*, uint32_t,
                                                       struct DLManagedTensorVersioned**) =
    &tidepool_array_to_dlpack_versioned;
tidepool_status (*const abi_array_from_dlpack)(struct DLManagedTensor*, const int64_t*,
                                               tidepool_array*) = &tidepool_array_from_dlpack;
tidepool_status (*const abi_array_from_dlpack_versioned)(struct DLManagedTensorVersioned*,
                                                         const int64_t*, tidepool_array*) =
    &tidepool_array_from_dlpack_versioned;
tidepool_status (*const abi_operators)(char**) = &tidepool_operators;
tidepool_status (*const abi_operator_new)(const char*, const char*,
                                          tidepool_operator*) = &tidepool_operator_new;
tidepool_status (*const abi_operator_release)(tidepool_operator) = &tidepool_operator_release;
tidepool_status (*const abi_operator_run)(tidepool_operator, const tidepool_array*, size_t,
                                          tidepool_array*, size_t) = &tidepool_operator_run;
tidepool_status (*const abi_operator_run_into)(tidepool_operator, const tidepool_array*, size_t,
                                               const tidepool_array*,
                                               size_t) = &tidepool_operator_run_into;
tidepool_status (*const abi_call)(const char*, const char*, const tidepool_array*, size_t,
                                  tidepool_array*, size_t) = &tidepool_call;
tidepool_status (*const abi_manager_new)(tidepool_manager, const char*, const char*,
                                         tidepool_manager*) = &tidepool_manager_new;
tidepool_status (*const abi_manager_release)(tidepool_manager) = &tidepool_manager_release;
tidepool_status (*const abi_manager_close)(tidepool_manager) = &tidepool_manager_close;
tidepool_status (*const abi_manager_attach)(tidepool_manager,
                                            tidepool_array) = &tidepool_manager_attach;
tidepool_status (*const abi_manager_lend)(tidepool_manager,
                                          tidepool_array) = &tidepool_manager_lend;
tidepool_status (*const abi_manager_return)(tidepool_manager,
                                            tidepool_array) = &tidepool_manager_return;
tidepool_status (*const abi_manager_enter)(tidepool_manager) = &tidepool_manager_enter;
tidepool_status (*const abi_manager_leave)(tidepool_manager) = &tidepool_manager_leave;
tidepool_status (*const abi_manager_set_budget)(tidepool_manager,
                                                int64_t) = &tidepool_manager_set_budget;
tidepool_status (*const abi_manager_get_info)(tidepool_manager,
                                              tidepool_manager_info*) = &tidepool_manager_get_info;
tidepool_status (*const abi_manager_report)(tidepool_manager, char**) = &tidepool_manager_report;
tidepool_status (*const abi_workspace_new)(const char*, const char*, const char*,
                                           tidepool_workspace*) = &tidepool_workspace_new;
tidepool_status (*const abi_workspace_release)(tidepool_workspace) = &tidepool_workspace_release;
tidepool_status (*const abi_workspace_begin)(tidepool_workspace) = &tidepool_workspace_begin;
tidepool_status (*const abi_workspace_end)(tidepool_workspace) = &tidepool_workspace_end;
tidepool_status (*const abi_workspace_abandon)(tidepool_workspace) = &tidepool_workspace_abandon;
tidepool_status (*const abi_workspace_stats)(tidepool_workspace,
                                             char**) = &tidepool_workspace_stats;
tidepool_status (*const abi_workspace_trim)(tidepool_workspace) = &tidepool_workspace_trim;
tidepool_status (*const abi_workspace_reset)(tidepool_workspace) = &tidepool_workspace_reset;
tidepool_status (*const abi_model_load)(const char*, const char*,
                                        tidepool_model*) = &tidepool_model_load;
tidepool_status (*const abi_model_release)(tidepool_model) = &tidepool_model_release;
tidepool_status (*const abi_model_describe)(tidepool_model, char**) = &tidepool_model_describe;
tidepool_status (*const abi_predictor_new)(tidepool_model, const char*,
                                           tidepool_predictor*) = &tidepool_predictor_new;
tidepool_status (*const abi_predictor_release)(tidepool_predictor) = &tidepool_predictor_release;
tidepool_status (*const abi_predictor_predict)(tidepool_predictor, const void*, size_t, int64_t,
                                               void*, size_t) = &tidepool_predictor_predict;
tidepool_status (*const abi_predictor_predict_array)(
    tidepool_predictor, tidepool_array, tidepool_array*) = &tidepool_predictor_predict_array;
tidepool_status (*const abi_predictor_stats)(tidepool_predictor,
                                             char**) = &tidepool_predictor_stats;
