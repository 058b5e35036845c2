// Model: a network, what it is called, and the manager that owns its arrays.
//
//   root > model (parameters, gradients; capped) > predictors, trainers
//
// The manager is capped: what a program makes of the parameters without saying whose it is would stay
// for as long as the model does, and is an error where it is made. Predictor and Trainer are below it
// and end with it: using one afterwards is an error that names the model.
//
// Move-only. Destruction closes the manager: handles of parameters that are left are refused then.
#ifndef TIDEPOOL_NN_MODEL_H_
#define TIDEPOOL_NN_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// A copy of a model's parameters on another device, and the manager that owns it, below the model's.
struct ModelReplica {
  NDManager manager;
  NetworkParameters parameters;
  uint32_t version = 0;  // of the model's parameters when they were copied
};

struct Model {
  Model() = default;
  // `name`: of LayersOf. The manager, called like the model, is directly below the root.
  Model(std::string name, int64_t classes, std::unique_ptr<Network> network);

  std::string name;
  int64_t classes = 0;
  // Before the network: it ends after it, so that the network's last handles free the arrays.
  NDManager manager;
  std::unique_ptr<Network> network;

  // Of the parameters and gradients; predictors' and trainers' are theirs. Throws
  // kFailedPrecondition when the model has been closed.
  void CheckOpen(const char* operation) const;
  void Close() { manager.Close(); }

  // The parameters on `device`, for predictors there: copied when first asked for and again after the
  // model's were written to, shared by all who ask meanwhile. Null for the network's own device. Who
  // holds an older copy keeps it. Threads: any, while nobody writes to the parameters.
  std::shared_ptr<const ModelReplica> ReplicaOn(Device device);

 private:
  struct Replicas {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<const ModelReplica>> by_device;
  };
  std::unique_ptr<Replicas> replicas_ = std::make_unique<Replicas>();
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODEL_H_
