// A network's function that is a program (nn/block.h).
#ifndef TIDEPOOL_NN_NETWORK_BLOCK_BODY_H_
#define TIDEPOOL_NN_NETWORK_BLOCK_BODY_H_

#include <memory>
#include <string>
#include <vector>

#include "tidepool/nn/block.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {

class BlockBody final : public NetworkBody {
 public:
  // Calls the block once, on zeros. Throws kInvalidArgument for a null block, one that is part of another, parts that are never
  // called, and what Forward throws.
  BlockBody(std::vector<InputConfig> inputs, std::unique_ptr<Block> block);

  std::string Describe() const override;
  std::vector<bool> MovedBeside(const std::vector<bool>& frozen) const override;
  Arrays Forward(BodyCall& call, Arrays inputs) const override;
  void WhileBackward(BodyCall& call, absl::FunctionRef<void()> backward) const override;

 private:
  std::unique_ptr<Block> block_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_BLOCK_BODY_H_
