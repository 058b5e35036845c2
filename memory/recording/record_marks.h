/* Cycles of a program that knows nothing of Tidepool, told to libtidepool_record.so where that is
 * loaded:
 *
 *   tidepool_mark_cycle_begin("request");
 *   ...
 *   tidepool_mark_cycle_end("request");
 *
 * C and C++, nothing to link. The library's functions are weak here: without it, a call is a test of a
 * pointer. On one thread cycles are nested or one after the other; names are texts that stay; a
 * null pointer is the empty one. */
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_MARKS_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_MARKS_H_

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((weak)) void tidepool_record_cycle_begin(const char* name);
__attribute__((weak)) void tidepool_record_cycle_end(const char* name);

static inline void tidepool_mark_cycle_begin(const char* name) {
  if (tidepool_record_cycle_begin != 0) tidepool_record_cycle_begin(name);
}
static inline void tidepool_mark_cycle_end(const char* name) {
  if (tidepool_record_cycle_end != 0) tidepool_record_cycle_end(name);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_MARKS_H_
