// Of graph_body.cc and graph_segments.cc alone: where a call has its values.
#ifndef TIDEPOOL_NN_NETWORK_GRAPH_FRAME_H_
#define TIDEPOOL_NN_NETWORK_GRAPH_FRAME_H_

#include <memory>
#include <mutex>
#include <utility>

#include "tidepool/nn/network/graph_body.h"

namespace tidepool::nn {

inline void GraphBody::Frame::Clear() {
  for (auto* arrays : {&values, &masks}) {
    for (NDArray& array : *arrays) array = NDArray();
  }
  taken.clear();
  taken_masks.clear();
  parameters.clear();
}

// A frame for the length of a call. As many are kept as calls overlapped.
class GraphBody::FrameLease {
 public:
  explicit FrameLease(const GraphBody& body) : body_(body) {
    {
      const std::lock_guard<std::mutex> lock(body.frames_mutex_);
      if (!body.frames_.empty()) {
        frame_ = std::move(body.frames_.back());
        body.frames_.pop_back();
      }
    }
    if (frame_ != nullptr) return;
    frame_ = std::make_unique<Frame>();
    frame_->values.resize(body.shapes_.size());
    frame_->masks.resize(body.shapes_.size());
    const std::lock_guard<std::mutex> lock(body.frames_mutex_);
    body.frames_.reserve(body.frames_.capacity() + 1);  // giving it back cannot fail
  }
  ~FrameLease() {
    frame_->Clear();
    const std::lock_guard<std::mutex> lock(body_.frames_mutex_);
    body_.frames_.push_back(std::move(frame_));
  }
  FrameLease(const FrameLease&) = delete;
  FrameLease& operator=(const FrameLease&) = delete;
  Frame& operator*() const { return *frame_; }

 private:
  const GraphBody& body_;
  std::unique_ptr<Frame> frame_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_GRAPH_FRAME_H_
