// Why cycles have no plan, as text.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/workspace/plan_family.h"
#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// Kinds beyond it are counted only.
constexpr size_t kMostLines = 16;
// What has not happened in so many is over.
constexpr uint64_t kCrowdCycles = 1024;

}  // namespace

std::string PlanLearner::Report() const {
  std::vector<const LoosePlans::Kind*> kinds;
  loose_.ForEach([&](const LoosePlans::Kind& kind) {
    if (plans_.Find(kind.last.signature, kind.last.requests) == nullptr) kinds.push_back(&kind);
  });
  std::sort(kinds.begin(), kinds.end(), [](const auto* a, const auto* b) {
    return a->last.cycle != b->last.cycle ? a->last.cycle < b->last.cycle
                                          : a->last.signature < b->last.signature;
  });
  std::string text;
  for (size_t i = 0; i < std::min(kinds.size(), kMostLines); ++i) {
    const LoosePlans::Reason& why = kinds[i]->last;
    absl::StrAppend(
        &text, "no plan for cycles of ", why.requests, " requests that begin with ",
        why.first_bytes, " bytes, since cycle ", why.cycle,
        why.alike ? ": other kinds begin so too, and with the places they have in common need "
                  : ": their lifetimes are other ones each time, all of which need ",
        why.needed_bytes, " bytes where at most ", why.alive_bytes, " were alive; given up ",
        kinds[i]->given_up, kinds[i]->given_up == 1 ? " time\n" : " times\n");
  }
  if (kinds.size() > kMostLines) {
    absl::StrAppend(&text, "and for ", kinds.size() - kMostLines, " other kinds likewise\n");
  }
  const auto crowd = [&](size_t first_bytes) {
    return absl::StrCat("more kinds begin with ", first_bytes, " bytes than are planned together (",
                        kMostFamilyMembers, ", of ", kMostFamilyRequests, " requests)");
  };
  crowds_.ForEachGivenUp([&](const Crowds::Crowd& each) {
    absl::StrAppend(&text, "no plans since cycle ", each.given_up_at, " where ",
                    crowd(each.first_bytes),
                    ", as each was in others' way; until few of these come; given up ", each.times,
                    each.times == 1 ? " time\n" : " times\n");
  });
  if (crowds_.last() > 0 && cycles_ - crowds_.last_missed() < kCrowdCycles) {
    absl::StrAppend(&text, "cycles leave their plans where ", crowd(crowds_.last()),
                    ", and each is in others' way\n");
  }
  if (const size_t left = effort_.until_affords(); left > 0) {
    absl::StrAppend(&text, "no plan until ", left,
                    " more requests are served: so much was planned of late that more would not ",
                    "pay\n");
  }
  if (trust_.doubts() && !plans_.empty()) {
    absl::StrAppend(
        &text, "most cycles begin without a plan: they are small, and fewer than one in five of ",
        "late were served by one without much ado\n");
  }
  if (effort_.loses()) {
    absl::StrAppend(&text, "no plan for cycles before they have come ", effort_.planned_at(),
                    " times: those of too many plans stayed away before ",
                    PlanningEffort::kPaidForGood, " had followed each; ", effort_.put_off(),
                    " cycles had none\n");
  } else if (effort_.are_hardly_followed(cycles_)) {
    absl::StrAppend(
        &text,
        "no plan for cycles before their third coming: the last plans were followed by few cycles ",
        "each; ", effort_.put_off(), " cycles had none\n");
  } else if (effort_.waits_for_second()) {
    absl::StrAppend(&text,
                    "no plan for cycles at first sight: no cycle has followed the last plans that ",
                    "were made so; ", effort_.put_off(), " cycles had none\n");
  }
  return text;
}

}  // namespace tidepool
