// Transfer of learning: parameters of a saved network, or of one in memory, into another one by
// their names, where both have them.
//
//   Transferred t = TransferParameters("digits.safetensors", network,
//                                      {.except = {"classes"}});   // a head of its own
//   network.SetFrozen({"stem", "block1"});
//   std::puts(t.ToString().c_str());
//   // "7 loaded, 2 left as they were (classes.weight, ...), 2 not used (...)"
//
// What is to be loaded is decided by names alone: a parameter that both have fits in shape and
// type, or it is an error that names it, before anything is written. A head of other classes is
// left out by `except`.
#ifndef TIDEPOOL_NN_TRANSFER_H_
#define TIDEPOOL_NN_TRANSFER_H_

#include <string>
#include <vector>

#include "tidepool/nn/network.h"

namespace tidepool::nn {

// Patterns (name_pattern.h) of the names of the network that is written to.
struct TransferOptions {
  // Those that must come from the other side: one that is not there is an error. Empty: all that
  // are there.
  std::vector<std::string> only;
  // Those that stay as they are, whatever the other side has.
  std::vector<std::string> except;
};

// By name, in the order of the side they are of.
struct Transferred {
  std::vector<std::string> loaded;  // taken from the other side
  std::vector<std::string> left;    // of the network, as they were
  std::vector<std::string> unused;  // of the other side
  std::string ToString() const;     // for people
};

// From a file of SaveParameters, SaveModel or SaveCheckpoint. Throws kInvalidArgument for a pattern
// that no parameter matches; kDataLoss naming file and tensor, found and expected, for one that
// does not fit or is missing, and when nothing would be loaded, and as SafetensorsReader::Open,
// before anything is written. An error while reading leaves some of them written.
Transferred TransferParameters(const std::string& path, Network& network,
                               const TransferOptions& options = {});

// The same from a network, of any device. Throws kInvalidArgument instead of kDataLoss.
Transferred TransferParameters(const Network& from, Network& network,
                               const TransferOptions& options = {});

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRANSFER_H_
