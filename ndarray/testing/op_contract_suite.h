// The contract every kernel provider keeps, as tests: random calls of every operator compared with
// the reference. A provider's contract test is this file, linked with the suite, the reference and
// the backend itself:
//
//   #include "tidepool/ndarray/testing/op_contract_suite.h"
//
//   namespace tidepool {
//   const bool registered = RegisterOpContract({
//       .provider = "cpu",
//       .gaps = {"divide i64", "sum i64"},          // kernels it does not have, all of them
//       .may_refuse = {"conv2d f32"},               // kernels whose supports() may say no
//   });
//   }  // namespace tidepool
//
//   tidepool_cc_test(name = "contract_test", deps = [":cpu", "//backends/reference",
//                                                    "//ndarray/testing:op_contract_suite"])
//
// Tests made: OpContract_<provider>.gaps prints the table of linked kernels and fails when `gaps`
// is stale in either direction; OpContract_<provider>.<operator>_<type> for each kernel. Each case
// checks
//   - results within tolerances.inc of the reference's (fill and copy: of a plain loop), operands
//     dense, at an offset, sliced, transposed or strided; where `close` says so, within that;
//   - nothing written outside the outputs, inputs unchanged;
//   - the same bits with 1, 2 and 3 threads;
//   - in-place forms, where the operator allows them;
//   - three cycles of a workspace that learns a plan, of alignment 16, 32 or 64, the same bits in each.
//
// The seed is printed; TIDEPOOL_CONTRACT_SEED sets another, TIDEPOOL_CONTRACT_CASES multiplies the
// number of cases (a float, 1 by default). A test with one seed is deterministic.
#ifndef TIDEPOOL_NDARRAY_TESTING_OP_CONTRACT_SUITE_H_
#define TIDEPOOL_NDARRAY_TESTING_OP_CONTRACT_SUITE_H_

#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

struct OpContract {
  std::string provider;
  // "<operator> <type>" of each kernel of the list that the provider has not; "<operator> *" and
  // "* <type>" stand for all types or operators.
  std::vector<std::string> gaps = {};
  // Instead of gaps, for providers of a few operators: exactly the kernels it has.
  std::vector<std::string> only = {};
  // Kernels that may refuse calls through supports().
  std::vector<std::string> may_refuse = {};
  // Of those, at least this part of the calls must run, or the test would prove little.
  double least_run = 0.2;
  // Kernels that are only close where tolerances.inc asks more, because functions of the device round in their own way:
  // those numbers instead of the list's, in the same units (of f32; other types in their own precision).
  struct Close {
    std::string kernels;  // "<operator> <type>", "<operator> *" or "* <type>"
    double relative = 0;
    double absolute = 0;
  };
  std::vector<Close> close = {};
  // Where its kernels run. Operands are made on the host and copied there, workspaces are the device's,
  // results are copied back; the reference computes on the host. Without that device (a driver and no
  // hardware) the tests are skipped.
  Device device = Host();
  // Times the number of cases.
  double cases = 1;
};

// Call from a static initialiser of the test. Always true.
bool RegisterOpContract(const OpContract& contract);

// What the tests report, one string per failure: for the test of the suite itself.
std::vector<std::string> GapProblems(const OpContract& contract);
std::vector<std::string> OperatorProblems(const OpContract& contract, OpCode op, DType dtype,
                                          int cases);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_OP_CONTRACT_SUITE_H_
