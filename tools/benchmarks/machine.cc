#include "tidepool/tools/benchmarks/machine.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/error.h"

namespace tidepool::tools {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

double TicksPerSecond() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

double SecondsOf(int who) {
  rusage usage;
  getrusage(who, &usage);
  auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OwnSeconds() { return SecondsOf(RUSAGE_SELF) + SecondsOf(RUSAGE_CHILDREN); }

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Used {
  std::string name;
  double seconds = 0;
};

// What each visible process but this one has used so far, by its number.
std::map<long, Used> UsedByProcesses() {
  std::map<long, Used> processes;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return processes;
  while (const dirent* entry = readdir(folder)) {
    const long id = std::strtol(entry->d_name, nullptr, 10);
    if (id <= 0 || id == getpid()) continue;
    // "ID (NAME) STATE ..." with user and system ticks as fields 14 and 15; NAME may hold anything.
    const std::string stat = Content(absl::StrCat("/proc/", id, "/stat"));
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    std::istringstream fields(stat.substr(close + 1));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    processes[id] = {stat.substr(open + 1, close - open - 1), (user + system) / TicksPerSecond()};
  }
  closedir(folder);
  return processes;
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  machine.processor = "unknown";
  std::istringstream info(Content("/proc/cpuinfo"));
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      machine.processor = line.substr(line.find(": ") + 2);
      break;
    }
  }
  cpu_set_t allowed;
  machine.processors = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                           ? CPU_COUNT(&allowed)
                           : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  double load[3] = {0, 0, 0};
  getloadavg(load, 3);
  machine.load = absl::StrFormat("%.2f %.2f %.2f", load[0], load[1], load[2]);
  utsname system;
  uname(&system);
  machine.kernel = absl::StrCat(system.sysname, " ", system.release);
  return machine;
}

double BusySeconds(const std::string& proc_stat, double ticks_per_second) {
  std::istringstream line(proc_stat);
  std::string name;
  double user, nice, system, idle, wait, interrupt, soft_interrupt, stolen;
  line >> name >> user >> nice >> system >> idle >> wait >> interrupt >> soft_interrupt >> stolen;
  if (!line || name != "cpu") {
    ThrowDataLoss(absl::StrCat("/proc/stat: expected \"cpu\" and eight numbers, found \"",
                               proc_stat.substr(0, proc_stat.find('\n')), "\""));
  }
  return (user + nice + system + interrupt + soft_interrupt + stolen) / ticks_per_second;
}

OthersWatch::OthersWatch()
    : time_(Now()),
      busy_(BusySeconds(Content("/proc/stat"), TicksPerSecond())),
      own_(OwnSeconds()) {}

double OthersWatch::Share() const {
  const double busy = BusySeconds(Content("/proc/stat"), TicksPerSecond()) - busy_;
  return std::max(0.0, (busy - (OwnSeconds() - own_)) / (Now() - time_));
}

std::string WhoIsBusy(double seconds, double limit) {
  const OthersWatch watch;
  const std::map<long, Used> before = UsedByProcesses();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double share = watch.Share();
  if (share <= limit) return "";
  std::string busiest;
  double most = 0;
  for (const auto& [id, used] : UsedByProcesses()) {
    const auto old = before.find(id);
    const double grown = used.seconds - (old == before.end() ? 0 : old->second.seconds);
    if (grown > most) {
      most = grown;
      busiest = absl::StrCat(used.name, ", process ", id);
    }
  }
  return absl::StrFormat(
      "other processes used %.0f %% of a processor for %.1f s (limit %.0f %%)%s", 100 * share,
      seconds, 100 * limit,
      busiest.empty() ? "; none of them is visible from here" : "; most by " + busiest);
}

}  // namespace tidepool::tools
