// How parameters start.
#ifndef TIDEPOOL_NN_LAYERS_INITIALIZER_H_
#define TIDEPOOL_NN_LAYERS_INITIALIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/field_visitor.h"

namespace tidepool::nn {

enum class InitializerKind : uint8_t {
  kAuto,             // what the layer's author chose
  kConstant,         // `value`
  kUniform,          // in [-value, value)
  kNormal,           // of deviation `value`
  kTruncatedNormal,  // likewise, within two deviations
  // Glorot and Bengio 2010: deviation sqrt(2 / (fan in + fan out)); He et al. 2015: sqrt(2 / fan in); LeCun et al. 1998:
  // sqrt(1 / fan in); `value` is a factor.
  kGlorotUniform,
  kGlorotNormal,
  kHeUniform,
  kHeNormal,
  kLecunUniform,
  kLecunNormal,
  kOrthogonal,  // Saxe et al. 2014, of [first axis, the others], times `value`
};

struct Initializer {
  InitializerKind kind = InitializerKind::kAuto;
  double value = 1;

  static Initializer Auto() { return {}; }
  static Initializer Constant(double value) { return {InitializerKind::kConstant, value}; }
  static Initializer Zeros() { return Constant(0); }
  static Initializer Ones() { return Constant(1); }
  static Initializer Uniform(double bound) { return {InitializerKind::kUniform, bound}; }
  static Initializer Normal(double deviation) { return {InitializerKind::kNormal, deviation}; }
  static Initializer GlorotUniform() { return {InitializerKind::kGlorotUniform, 1}; }
  static Initializer HeUniform() { return {InitializerKind::kHeUniform, 1}; }

  // `fallback` where this is kAuto.
  Initializer Or(Initializer fallback) const {
    return kind == InitializerKind::kAuto ? fallback : *this;
  }

  friend bool operator==(const Initializer&, const Initializer&) = default;
};

// As fields `name` and `name`_value.
void VisitInitializer(FieldVisitor& visitor, const std::string& name, Initializer& initializer);

// One array of parameters, before it exists.
struct ParameterSpec {
  std::string name;  // "weight", "bias", ...
  Shape shape;
  Initializer initializer = Initializer::Zeros();
  // How many numbers one output is the sum of, and in how many outputs one number takes part.
  int64_t fan_in = 1, fan_out = 1;
  // False: state that layers write themselves and no gradient changes, such as running averages.
  bool is_trained = true;
  // Whether weight decay and regularisation are for it; as a rule not for biases and scales.
  bool decays = true;
  // Of equal runs of the first axis, such as the gates of a cell, each by an initialiser of its own, in `initializer`'s place.
  std::vector<Initializer> of_runs = {};

  bool StartsAtZero() const { return of_runs.empty() && initializer == Initializer::Zeros(); }
};

// The initial values, on the host's heap: a function of (seed, stream). Throws kInvalidArgument for numbers that cannot be
// (a negative bound, kAuto).
NDArray DrawInitial(const ParameterSpec& spec, DType dtype, uint64_t seed, uint64_t stream);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_INITIALIZER_H_
