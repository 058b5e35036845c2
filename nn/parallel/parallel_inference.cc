#include "tidepool/nn/parallel/parallel_inference.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/parallel/inference_census.h"
#include "tidepool/nn/parallel/waiting_request.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "parallel inference";  // before there is a service with a name

void CheckDeadline(const std::optional<std::chrono::nanoseconds>& deadline) {
  if (!deadline.has_value() || deadline->count() > 0) return;
  ThrowInvalidArgument(
      absl::StrCat(kName, ": deadline of ", deadline->count(), " ns, expected a positive one"));
}

}  // namespace

class ParallelInference::Core final : public internal::InferenceMember {
 public:
  Core(std::shared_ptr<const Network> network, const ParallelInferenceConfig& config)
      : InferenceMember(config.name, network->device()),
        config_(config),
        pool_(config.name, WorkspaceConfig::Inference(), network->device()),
        network_(std::move(network)) {
    const bool is_in_place = config.mode == InferenceMode::kInPlace;
    if (config.budget_bytes > 0) {
      manager_ = NDManager::NewBaseManager(network_->device(), config.name);
      manager_.Cap();
      for (int i = 1; i <= (is_in_place ? 1 : config.workers); ++i) {
        managers_.push_back(manager_.NewSubManager(
            is_in_place ? "in place" : absl::StrCat("worker ", i), network_->device()));
        managers_.back().Cap();
      }
    }
    Join();
    if (is_in_place) return;
    try {
      for (int i = 0; i < config.workers; ++i) workers_.emplace_back([this, i] { Work(i); });
    } catch (const std::system_error& error) {
      const size_t started = workers_.size();
      Shutdown();
      Leave();
      ThrowResourceExhausted(absl::StrCat(config.name, ": the system has no thread for worker ",
                                          started, " of ", config.workers, ": ",
                                          error.code().message()));
    } catch (...) {  // no memory for their list
      Shutdown();
      Leave();
      throw;
    }
  }
  ~Core() override {
    Shutdown();
    Leave();
  }

  void Run(const Request& request, Arrays& outputs, int64_t examples) {
    WaitingRequest waiting{
        &request.inputs, &request.masks, &outputs, examples,
        DeadlineOf(request.deadline.has_value() ? request.deadline : config_.deadline)};
    if (config_.mode == InferenceMode::kInPlace) {
      RunHere(waiting);
    } else {
      RunThere(waiting, request.when_full.value_or(config_.when_full));
    }
    if (waiting.error != nullptr) std::rethrow_exception(waiting.error);
  }

  void UpdateModel(std::shared_ptr<const Network> network) {
    const std::lock_guard<std::mutex> lock(mutex_);
    network_.swap(network);
  }
  std::shared_ptr<const Network> network() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return network_;
  }

  void Shutdown() {
    CheckComputesNothingOf(this, config_.name);
    const std::lock_guard<std::mutex> one(shutdown_mutex_);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wakes_.notify_all();
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [&] { return stats_.running == 0; });
  }

  void Cancel() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = cancelled_ = true;
      while (queue_.first() != nullptr) {
        WaitingRequest& waiting = *queue_.first();
        TakeOut(nullptr);
        waiting.error = std::make_exception_ptr(Cancelled());
        waiting.state = WaitingRequest::State::kDone;
        waiting.done.notify_one();
      }
    }
    wakes_.notify_all();
    room_.notify_all();
  }

  const ParallelInferenceConfig& config() const { return config_; }
  ParallelInferenceStats stats() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }
  WorkspacePool& pool() { return pool_; }

  void AddTo(bool is_alive, InferenceGroup& group) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    AddInferenceCounters(stats_, group.stats);
    if (!is_alive) return;
    ++group.alive;
    group.workers += config_.mode == InferenceMode::kInPlace ? 0 : config_.workers;
    group.queue_limit += config_.queue_limit;
    group.stats.waiting += stats_.waiting;
    group.stats.running += stats_.running;
  }
  void LockForFork() override { mutex_.lock(); }
  void UnlockAfterFork() override { mutex_.unlock(); }

 private:
  // ---- Requests; mutex_ is held where `lock` is handed in ----

  Error Cancelled() const {
    return {absl::StatusCode::kCancelled,
            absl::StrCat(config_.name, ": requests that wait have been cancelled")};
  }

  void CheckOpen() const {
    if (cancelled_) throw Cancelled();
    if (stopping_)
      ThrowFailedPrecondition(absl::StrCat(config_.name, ": a request after Shutdown"));
  }

  void RunHere(WaitingRequest& waiting) {
    std::shared_ptr<const Network> network;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      CheckOpen();
      network = network_;
      internal::CountBatch(stats_, 1, waiting.examples);
    }
    WaitingRequest* const batch[] = {&waiting};
    ComputeRequests(*network, PlaceOf(0), batch);
    const std::lock_guard<std::mutex> lock(mutex_);
    Count(waiting);
    if (--stats_.running == 0) idle_.notify_all();
  }

  void RunThere(WaitingRequest& waiting, WhenFull when_full) {
    std::unique_lock<std::mutex> lock(mutex_);
    AwaitRoom(lock, waiting.deadline, when_full);
    queue_.Add(waiting);
    ++stats_.waiting;
    wakes_.notify_one();
    if (waiting.deadline.has_value()) {
      const auto has_begun = [&] { return waiting.state != WaitingRequest::State::kWaiting; };
      if (!waiting.done.wait_until(lock, *waiting.deadline, has_begun)) {
        TakeOut(queue_.Before(waiting));
        Expire(waiting);
        return;
      }
    }
    waiting.done.wait(lock, [&] { return waiting.state == WaitingRequest::State::kDone; });
  }

  void AwaitRoom(std::unique_lock<std::mutex>& lock, const WaitingRequest::Deadline& deadline,
                 WhenFull when_full) {
    CheckOpen();
    const auto has_room = [&] { return cancelled_ || stats_.waiting < config_.queue_limit; };
    // Who does not wait for room leaves it to those who do.
    if (stats_.waiting + waiting_for_room_ < config_.queue_limit) return;
    if (when_full == WhenFull::kRefuse) {
      ++stats_.refused;
      throw QueueFullError(absl::StrCat(config_.name, ": ", stats_.waiting, " requests wait, of ",
                                        config_.queue_limit, ", and ", waiting_for_room_,
                                        " for room; try again later"));
    }
    ++waiting_for_room_;
    const absl::Cleanup waits_no_more = [this] {
      // Workers that are to end wait for it.
      if (--waiting_for_room_ == 0 && stopping_) wakes_.notify_all();
    };
    if (!deadline.has_value()) {
      room_.wait(lock, has_room);
    } else if (!room_.wait_until(lock, *deadline, has_room)) {
      ++stats_.expired;
      throw Error(absl::StatusCode::kDeadlineExceeded,
                  absl::StrCat(config_.name, ": no room among ", stats_.waiting,
                               " requests that wait by the deadline"));
    }
    if (cancelled_) throw Cancelled();
  }

  // It waits no longer.
  void TakeOut(WaitingRequest* before) {
    queue_.RemoveBehind(before);
    --stats_.waiting;
    room_.notify_one();
  }

  void Expire(WaitingRequest& waiting) {
    ++stats_.expired;
    waiting.error = std::make_exception_ptr(
        Error(absl::StatusCode::kDeadlineExceeded,
              absl::StrCat(config_.name, ": no worker was free by the request's deadline")));
    waiting.state = WaitingRequest::State::kDone;
  }

  void Count(const WaitingRequest& waiting) {
    if (waiting.error != nullptr) {
      ++stats_.failed;
      return;
    }
    internal::CountAnswer(stats_, waiting.examples, WaitingRequest::Clock::now() - waiting.called);
  }

  // ---- Workers ----

  BatchPlace PlaceOf(int worker) {
    return {pool_, managers_.empty() ? nullptr : &managers_[static_cast<size_t>(worker)],
            config_.budget_bytes, this};
  }

  void Work(int worker) {
    WorkerPool kernels(config_.threads_of_worker);
    const ThreadPoolScope own(kernels);
    std::vector<WaitingRequest*> batch;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wakes_.wait(
          lock, [&] { return queue_.first() != nullptr || (stopping_ && waiting_for_room_ == 0); });
      if (queue_.first() == nullptr) return;
      Take(batch);
      if (batch.empty()) continue;
      std::shared_ptr<const Network> network = network_;
      lock.unlock();
      ComputeRequests(*network, PlaceOf(worker), batch);
      network.reset();
      lock.lock();
      stats_.running -= static_cast<int64_t>(batch.size());
      for (WaitingRequest* const waiting : batch) {
        Count(*waiting);
        waiting->state = WaitingRequest::State::kDone;
        waiting->done.notify_one();  // under the lock: it is gone once its caller has that
      }
    }
  }

  // The oldest request, and those behind it that fit. Those whose deadline is over are told so.
  void Take(std::vector<WaitingRequest*>& batch) {
    batch.clear();
    int64_t examples = 0;
    WaitingRequest* before = nullptr;
    for (WaitingRequest* at = queue_.first(); at != nullptr;) {
      WaitingRequest* const behind = at->next;
      if (at->deadline.has_value() && *at->deadline <= WaitingRequest::Clock::now()) {
        TakeOut(before);
        Expire(*at);
        at->done.notify_one();
      } else if (batch.empty() ||
                 (examples + at->examples <= config_.batch_limit && FitTogether(*batch[0], *at))) {
        TakeOut(before);
        at->state = WaitingRequest::State::kRunning;
        examples += at->examples;
        batch.push_back(at);
        if (config_.mode == InferenceMode::kSequential || examples >= config_.batch_limit) break;
      } else {
        before = at;
      }
      at = behind;
    }
    if (!batch.empty()) internal::CountBatch(stats_, std::ssize(batch), examples);
  }

  const ParallelInferenceConfig config_;
  WorkspacePool pool_;
  NDManager manager_;                // with a budget
  std::vector<NDManager> managers_;  // of each worker, below it
  std::mutex shutdown_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable wakes_, room_, idle_;
  // Guarded by mutex_:
  std::shared_ptr<const Network> network_;
  WaitingQueue queue_;
  int64_t waiting_for_room_ = 0;
  bool stopping_ = false, cancelled_ = false;
  ParallelInferenceStats stats_;

  std::vector<std::thread> workers_;
};

ParallelInference::ParallelInference(std::shared_ptr<const Network> network,
                                     const ParallelInferenceConfig& config) {
  if (network == nullptr) ThrowInvalidArgument(absl::StrCat(kName, ": no network, expected one"));
  const bool is_in_place = config.mode == InferenceMode::kInPlace;
  if (config.workers < (is_in_place ? 0 : 1) || config.batch_limit < 1 || config.queue_limit < 1 ||
      config.threads_of_worker < 1) {
    ThrowInvalidArgument(absl::StrCat(
        kName, ": workers ", config.workers, ", batch_limit ", config.batch_limit, ", queue_limit ",
        config.queue_limit, ", threads_of_worker ", config.threads_of_worker,
        ", expected at least 1 of each", is_in_place ? ", of workers in place 0" : ""));
  }
  if (config.budget_bytes < 0) {
    ThrowInvalidArgument(absl::StrCat(kName, ": budget_bytes ", config.budget_bytes,
                                      ", expected 0 for none or a positive number"));
  }
  CheckDeadline(config.deadline);
  core_ = std::make_unique<Core>(std::move(network), config);
}

ParallelInference::~ParallelInference() = default;

Arrays ParallelInference::Run(const Request& request) {
  CheckDeadline(request.deadline);
  const std::shared_ptr<const Network> network = core_->network();
  const Arrays& inputs = request.inputs;
  network->CheckFeatures(absl::MakeConstSpan(inputs));
  const int64_t examples = inputs[0].dim(0);
  for (size_t i = 0; i < request.masks.size(); ++i) {
    const NDArray& mask = request.masks[i];
    if (!mask.is_defined()) continue;
    mask.CheckAlive("run", "mask");
    if (i < inputs.size() && mask.rank() >= 1 && mask.dim(0) == examples) continue;
    ThrowInvalidArgument(absl::StrCat(kName, ": mask ", i, " has shape ", mask.shape().ToString(),
                                      ", expected [", examples, ", ...] for one of ", inputs.size(),
                                      " inputs"));
  }
  Arrays outputs;
  for (const Shape& shape : network->output_shapes()) {
    std::vector<int64_t> dims = {examples};
    dims.insert(dims.end(), shape.dims(), shape.dims() + shape.rank());
    outputs.push_back(NDArray(Shape(absl::MakeConstSpan(dims)), network->dtype(),
                              Place::CurrentOn(network->device())));
  }
  core_->Run(request, outputs, examples);
  return outputs;
}

NDArray ParallelInference::Output(const NDArray& features) {
  Request request;
  request.inputs.push_back(features);
  Arrays outputs = Run(request);
  if (outputs.size() == 1) return std::move(outputs[0]);
  ThrowInvalidArgument(absl::StrCat(kName, ": the network has ", outputs.size(),
                                    " outputs, expected one, or a call of Run()"));
}

void ParallelInference::UpdateModel(std::shared_ptr<const Network> network) {
  if (network == nullptr)
    ThrowInvalidArgument(absl::StrCat(kName, ": UpdateModel: no network, expected one"));
  const std::shared_ptr<const Network> now = core_->network();
  bool fits = network->inputs().size() == now->inputs().size() &&
              network->output_shapes() == now->output_shapes() &&
              network->dtype() == now->dtype() && network->device() == now->device();
  for (size_t i = 0; fits && i < now->inputs().size(); ++i) {
    fits = network->inputs()[i].shape == now->inputs()[i].shape &&
           network->inputs()[i].dtype == now->inputs()[i].dtype;
  }
  if (!fits) {
    ThrowInvalidArgument(absl::StrCat(kName, ": UpdateModel: network [", network->Describe(),
                                      "] in place of [", now->Describe(),
                                      "], expected the same inputs, outputs, type and device"));
  }
  core_->UpdateModel(std::move(network));
}

std::shared_ptr<const Network> ParallelInference::network() const { return core_->network(); }
void ParallelInference::Shutdown() { core_->Shutdown(); }
void ParallelInference::Cancel() { core_->Cancel(); }
const ParallelInferenceConfig& ParallelInference::config() const { return core_->config(); }
ParallelInferenceStats ParallelInference::stats() const { return core_->stats(); }
WorkspacePool& ParallelInference::workspaces() { return core_->pool(); }

}  // namespace tidepool::nn
