// UniqueName: a name that no other living one has: "mlp", and "mlp 2", "mlp 3" while that is taken.
//
// Numbers of names that are gone are given again, the lowest first, so that what keeps names for
// the life of the process (owners of the ledger) stays small. Threads: any. Cost: a lock and an
// entry in a table.
#ifndef TIDEPOOL_NN_UNIQUE_NAME_H_
#define TIDEPOOL_NN_UNIQUE_NAME_H_

#include <string>

namespace tidepool::nn {

class UniqueName {
 public:
  explicit UniqueName(const std::string& name);
  ~UniqueName();
  // The one moved from has none.
  UniqueName(UniqueName&& other) noexcept;
  UniqueName& operator=(UniqueName&& other) noexcept;

  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
  int number_;  // 0: moved from
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_UNIQUE_NAME_H_
