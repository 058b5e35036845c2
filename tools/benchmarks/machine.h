// What a measurement was made on, and whether something else ran beside it.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_MACHINE_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_MACHINE_H_

#include <string>

namespace tidepool::tools {

struct Machine {
  std::string processor;  // model name of the first, "unknown" where the kernel does not say
  int processors = 0;     // that this process may run on
  std::string load;       // averages over 1, 5 and 15 minutes
  std::string kernel;     // "Linux 6.1.0"
};
Machine DescribeMachine();

// Seconds that all processors together were not idle since the machine started, from the text of
// /proc/stat; time a hypervisor gave to other guests counts as busy. Throws kDataLoss when it has
// no "cpu" line.
double BusySeconds(const std::string& proc_stat, double ticks_per_second);

// Seconds of processors that other processes used between two moments, as a share of one
// processor. The calling process and its children that it has waited for do not count.
class OthersWatch {
 public:
  OthersWatch();
  double Share() const;  // since construction; 0.5: half a processor all the time

 private:
  double time_, busy_, own_;
};

// Waits `seconds` and returns a sentence when others used more than `limit` of one processor
// meanwhile, naming the process that used most (if it is visible from here); else "".
std::string WhoIsBusy(double seconds, double limit);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_MACHINE_H_
