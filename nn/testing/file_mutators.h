// Changes to files of networks for fuzz targets (memory/testing/fuzzing/fuzz_target.h).
#ifndef TIDEPOOL_NN_TESTING_FILE_MUTATORS_H_
#define TIDEPOOL_NN_TESTING_FILE_MUTATORS_H_

#include <string>

#include "tidepool/memory/io/testing/byte_mutator.h"

namespace tidepool::nn {

// A number for another, or a word or bracket for one that may stand there too.
void MutateJson(ByteMutator& mutator, std::string& text);
// Of a safetensors file: the header alone, most of the time; its length fits again.
void MutateHeader(ByteMutator& mutator, std::string& bytes);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_FILE_MUTATORS_H_
