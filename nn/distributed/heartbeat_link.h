// A TCP connection over which two ranks tell each other that they are alive, in frames. See
// heartbeat.h.
#ifndef TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_LINK_H_
#define TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_LINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "tidepool/nn/distributed/communicator.h"

namespace tidepool::nn {

enum class FrameKind : uint32_t {
  kHello,    // a rank's first; its text is the job's cookie
  kBeat,     // how far the sender is
  kAskLog,   // by rank 0, of all
  kLog,      // the answer
  kFailed,   // a rank has met an error, which the text says
  kVerdict,  // by rank 0: the job ends, and why
  kBye,      // the sender goes, and has not died
};
inline constexpr uint32_t kFrameKinds = 7;

struct Frame {
  FrameKind kind = FrameKind::kBeat;
  int32_t rank = 0;  // the sender's
  RankProgress progress;
  std::string text;
};

// A descriptor that is closed.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class HeartbeatLink {
 public:
  static constexpr size_t kMostText = size_t{64} << 10;

  explicit HeartbeatLink(Descriptor descriptor);
  int descriptor() const { return descriptor_.get(); }
  // False: it is closed, or the other side has not read for long. Longer texts are cut. Waits for
  // nobody.
  bool Send(FrameKind kind, int rank, const RankProgress& progress,
            absl::string_view text = "") noexcept;
  // Gives each whole frame that has come. False: it is closed, or what came is no frame.
  bool Receive(absl::FunctionRef<void(const Frame&)> take);

 private:
  Descriptor descriptor_;
  std::vector<char> come_;
};

// Listens on a port that the system chooses, on all addresses of this machine. Throws by errno.
Descriptor ListenAnywhere(int* port);
// "10.0.0.3": IPv4 addresses that other machines may reach this one by, then 127.0.0.1.
std::vector<std::string> AddressesOfThisMachine();
// None (-1) where nobody answers within the time.
Descriptor Connect(const std::string& address, int port, std::chrono::milliseconds time);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_HEARTBEAT_LINK_H_
