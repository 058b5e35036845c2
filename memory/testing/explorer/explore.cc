#include "tidepool/memory/testing/explorer/explore.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/explorer/choices.h"
#include "tidepool/memory/testing/explorer/engine.h"
#include "tidepool/memory/testing/explorer/overflow.h"
#include "tidepool/memory/testing/explorer/search.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/testing/explorer/trace.h"

namespace tidepool::explorer {
namespace internal {
namespace {

// One exploration. A string to replay is "name/p2-choices": the bound is part of it, as it decides
// what there is to choose; "p*" is none.
class Explorer {
 public:
  Explorer(const Options& options, absl::FunctionRef<void(Execution&)> body, Sites* sites)
      : options_(options), body_(body), engine_(options, choices_, sites) {
    result_.name = options.name;
  }

  Result Search() {
    const auto begin = std::chrono::steady_clock::now();
    switch (options_.search) {
      case Search::kBounded:
        for (int bound = 0; bound <= options_.preemptions; ++bound) {
          if (!SearchRound(bound, false) || !engine_.bound_mattered()) break;
        }
        break;
      case Search::kFull:
        SearchRound(-1, true);
        break;
      case Search::kRandom:
      case Search::kPriorities:
        RunRandomly();
        break;
    }
    result_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(result_);
  }

  Result Replay(const std::string& whole) {
    std::string text = whole;
    const size_t slash = text.rfind('/');
    if (slash != text.npos) text.erase(0, slash + 1);
    const size_t dash = text.find('-');
    int bound = -1;
    bool valid = text.size() >= 2 && text[0] == 'p' && dash != text.npos;
    if (valid && text[1] != '*') {
      const auto parsed = std::from_chars(text.data() + 1, text.data() + dash, bound);
      valid = parsed.ec == std::errc() && parsed.ptr == text.data() + dash && bound >= 0;
    }
    if (!valid) {
      ThrowInvalidArgument(absl::StrCat("replay of an exploration: '", whole,
                                        "', expected [name/]p<preemptions or *>-<choices>"));
    }
    choices_.BeginReplay(text.substr(dash + 1));
    engine_.set_bound(bound, false);
    RunTraced(bound);
    result_.replayed = true;
    return std::move(result_);
  }

 private:
  // False when the search is over: after a failure, or too many executions.
  bool SearchRound(int bound, bool reduce) {
    choices_.Begin(Choices::Source::kSearch, 0);
    engine_.set_bound(bound, reduce);
    result_.rounds.push_back({.preemptions = bound});
    result_.exhausted = false;
    do {
      if (result_.executions == options_.max_executions) return false;
      if (!RunOne(bound)) return false;
      if (result_.rounds.back().executions == 1 && !RepeatsTheFirst()) return false;
    } while (choices_.Advance());
    result_.exhausted = true;
    result_.yields_left_out = engine_.yields_mattered();
    result_.stores_left_out = engine_.order_mattered();
    result_.unbounded =
        !engine_.bound_mattered() && !result_.yields_left_out && !result_.stores_left_out;
    return true;
  }

  // The first execution of each round is the same one: each choice is the first. (Not for certain where
  // somebody yields: whether a loop has come round may be seen or not.)
  bool RepeatsTheFirst() {
    if (engine_.anyone_yielded()) return true;
    const int64_t events = choices_.events();
    if (result_.rounds.size() == 1) first_events_ = events;
    if (first_events_ == -1 || events == first_events_) return true;
    result_.failure = FailureKind::kNotDeterministic;
    result_.message = absl::StrCat("the execution in which each choice is the first took ",
                                   first_events_, " steps and new variables, and ", events,
                                   " when it was repeated: ", kDependsOnSomethingElse);
    return false;
  }

  void RunRandomly() {
    choices_.Begin(Choices::Source::kRandom, options_.seed);
    engine_.set_bound(-1, false);
    result_.rounds.emplace_back();
    for (int64_t i = 0; i < options_.executions && RunOne(-1); ++i) {
    }
  }

  bool RunOne(int bound) {
    const bool passed = engine_.Run(body_);
    Result::Round& round = result_.rounds.back();
    ++result_.executions;
    ++round.executions;
    round.distinct += !engine_.pruned() && engine_.preemptions() >= bound;
    round.pruned += engine_.pruned();
    result_.steps += engine_.steps();
    result_.depth = std::max(result_.depth, choices_.depth());
    if (passed) return true;
    const FailureKind failure = engine_.failure();
    const std::string message = engine_.message();
    choices_.Repeat();
    engine_.set_bound(bound, false);
    RunTraced(bound);
    if (failure != result_.failure) {
      absl::StrAppend(&result_.message, result_.message.empty() ? "" : "; ", "run again it ",
                      result_.failure == FailureKind::kNone ? "passes" : "fails in another way",
                      ", and the first time: ", ToText(failure), ", ", message);
      result_.failure = FailureKind::kNotDeterministic;
    }
    return false;
  }

  void RunTraced(int bound) {
    Trace trace;
    engine_.set_trace(&trace);
    engine_.Run(body_);
    engine_.set_trace(nullptr);
    result_.failure = engine_.failure();
    result_.message = engine_.message();
    result_.trace = trace.Text();
    result_.replay = absl::StrCat(options_.name.empty() ? "" : absl::StrCat(options_.name, "/"),
                                  "p", bound < 0 ? "*" : absl::StrCat(bound), "-", choices_.Text());
  }

  const Options& options_;
  const absl::FunctionRef<void(Execution&)> body_;
  const OverflowReports overflow_reports_;
  Choices choices_;
  Engine engine_;
  int64_t first_events_ = -1;  // of the first execution of the first round, if they can be compared
  Result result_;
};

void Validate(const Options& options) {
  auto at_least = [](const char* field, int64_t value, int64_t least) {
    if (value >= least) return;
    ThrowInvalidArgument(
        absl::StrCat("explorer::Options.", field, " is ", value, ", expected at least ", least));
  };
  at_least("preemptions", options.preemptions, 0);
  at_least("max_executions", options.max_executions, 1);
  at_least("max_steps", options.max_steps, 1);
  at_least("spurious_failures", options.spurious_failures, 0);
  at_least("yields", options.yields, 0);
  at_least("executions", options.executions, 1);
  at_least("priority_changes", options.priority_changes, 0);
  constexpr size_t kLeastStack = 16 << 10, kMostStack = size_t{1} << 30;
  if (options.stack_bytes < kLeastStack || options.stack_bytes > kMostStack) {
    ThrowInvalidArgument(absl::StrCat("explorer::Options.stack_bytes is ", options.stack_bytes,
                                      ", expected ", kLeastStack, " to ", kMostStack));
  }
  const size_t slash = options.replay.rfind('/');
  const std::string replayed = slash == options.replay.npos ? "" : options.replay.substr(0, slash);
  if (!replayed.empty() && !options.name.empty() && replayed != options.name) {
    ThrowInvalidArgument(absl::StrCat("explorer::Options.replay is of exploration [", replayed,
                                      "], expected one of [", options.name, "]"));
  }
  if (Engine::Running() != nullptr) {
    ThrowFailedPrecondition("explorer::Explore is called by what it explores");
  }
}

// What the environment says to replay, if it is of this exploration.
std::string ReplayOf(const Options& options) {
  if (!options.replay.empty()) return options.replay;
  const char* variable = std::getenv("TIDEPOOL_EXPLORER_REPLAY");
  if (variable == nullptr) return "";
  const std::string text = variable;
  const size_t slash = text.rfind('/');
  const std::string name = slash == text.npos ? "" : text.substr(0, slash);
  return name == options.name ? text : "";
}

}  // namespace

Result SearchAll(const Options& options, absl::FunctionRef<void(Execution&)> body, Sites* sites) {
  Validate(options);
  return Explorer(options, body, sites).Search();
}

}  // namespace internal

Result Explore(const Options& options, absl::FunctionRef<void(Execution&)> body) {
  internal::Validate(options);
  const std::string replay = internal::ReplayOf(options);
  if (replay.empty()) return internal::SearchAll(options, body, nullptr);
  return internal::Explorer(options, body, nullptr).Replay(replay);
}

void* Execution::Allocate(size_t bytes, size_t alignment) {
  return engine_.arena().Allocate(bytes, alignment);
}
void Execution::AddUnwatched(const void* at, size_t bytes) { engine_.AddUnwatched(at, bytes); }
void Execution::DestroyAtEnd(void (*destroy)(void*), void* object) {
  engine_.DestroyAtEnd(destroy, object);
}
void Execution::AddThread(void (*function)(void*), void* argument, size_t bytes) {
  engine_.AddThread(function, argument, bytes);
}
void Execution::AddEnd(void (*function)(void*), void* argument) {
  engine_.AddEnd(function, argument);
}
void Execution::AddInvariant(void (*function)(void*), void* argument) {
  engine_.AddInvariant(function, argument);
}

void Sync::Yield() { internal::Engine::Get().Yield(); }

void Check(bool holds, absl::string_view what, Where where) {
  internal::Engine& engine = internal::Engine::Get();
  if (holds) return;
  engine.Fail(engine.inspecting() ? FailureKind::kInvariant : FailureKind::kCheck, [&] {
    return absl::StrCat(what, " does not hold, checked by ", internal::ThreadName(engine.slot()),
                        " at ", ToText(where));
  });
}

int Choose(int count) {
  internal::Engine& engine = internal::Engine::Get();
  if (count < 1) {
    engine.Fail(FailureKind::kMisuse,
                [&] { return absl::StrCat("Choose(", count, "), expected at least 1"); });
  }
  const int chosen = static_cast<int>(engine.Choose(static_cast<uint32_t>(count)));
  if (engine.trace() != nullptr) engine.Record(absl::StrCat("chooses ", chosen), Where());
  return chosen;
}

}  // namespace tidepool::explorer
