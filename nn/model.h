// Model: a network, what it is called, and the manager that owns its arrays.
//
//   root > model (parameters, gradients; capped) > predictors, trainers
//
// The manager is capped: what a program makes of the parameters without saying whose it is would stay
// for as long as the model does, and is an error where it is made. Predictor and Trainer are below it
// and end with it: using one afterwards is an error that names the model.
//
// Move-only; predictors and trainers go on with the model where it is moved to. Destruction closes
// the manager: handles of parameters that are left are refused then, and using a predictor or
// trainer that is left is an error that says so. Neither may happen while one of them is running.
#ifndef TIDEPOOL_NN_MODEL_H_
#define TIDEPOOL_NN_MODEL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// A copy of a model's parameters on another device, and the manager that owns it, below the model's.
struct ModelReplica {
  NDManager manager;             // closing it gives the copy back
  NetworkParameters parameters;  // on the manager's device
  uint32_t version = 0;          // of the model's parameters when they were copied
};

struct Model;

// What predictors and trainers hold of their model, so that they know where it is, and when it is
// gone.
class ModelLink {
 public:
  ModelLink(Model* model, std::string name) : model_(model), name_(std::move(name)) {}
  // Throws kFailedPrecondition when the model was destroyed or closed.
  Model& Get(const char* operation) const;

 private:
  friend struct Model;
  std::atomic<Model*> model_;  // null: destroyed
  const std::string name_;
};

struct Model {
  Model() = default;
  // `name`: of LayersOf. The manager, called like the model, is directly below the root. Throws
  // kInvalidArgument when there is no network or its outputs are not so many classes.
  Model(std::string name, int64_t classes, std::unique_ptr<Network> network);
  Model(Model&& other) noexcept;
  Model& operator=(Model&& other) noexcept;
  ~Model();

  // What it is called, and how many classes its output has: the size of its last axis, whatever that stands for. 0: it was moved from.
  std::string name;
  int64_t classes = 0;
  // What the program wants to find again with the model, by name: a Normalizer's text, what classes are called. Saved and
  // loaded with it (model_file.h).
  std::map<std::string, std::string> notes;
  // Before the network: it ends after it, so that the network's last handles free the arrays.
  NDManager manager;
  std::shared_ptr<Network> network;  // trainers and predictors hold it as well

  // Of the parameters and gradients; predictors' and trainers' are theirs. Throws
  // kFailedPrecondition when the model has been closed, or has no network as it was moved from.
  void CheckOpen(const char* operation) const;
  // For what uses the model for longer than a call. Throws as CheckOpen.
  std::shared_ptr<const ModelLink> LinkFor(const char* operation) const;
  void Close() { manager.Close(); }
  // Network::SetFrozen; the new gradients are the manager's. Throws as CheckOpen too.
  void SetFrozen(absl::Span<const std::string> patterns);

  // The parameters on `device`, for predictors there: copied when first asked for and again after the
  // model's were written to, shared by all who ask meanwhile; for each call while another library has
  // the parameters (dlpack.h), which may write to them unseen. Null for the network's own device. Who
  // holds an older copy keeps it. Threads: any, while nobody writes to the parameters.
  std::shared_ptr<const ModelReplica> ReplicaOn(Device device);

 private:
  struct Replicas {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<const ModelReplica>> by_device;
  };
  void Unlink() noexcept;
  std::unique_ptr<Replicas> replicas_ = std::make_unique<Replicas>();
  std::shared_ptr<ModelLink> link_;  // null without a network
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODEL_H_
