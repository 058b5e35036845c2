#include "tidepool/examples/language_model/ngram_model.h"

#include <gtest/gtest.h>

#include <string>

#include "tidepool/memory/error.h"

namespace tidepool::examples {
namespace {

std::string Symbols(std::initializer_list<char> symbols) { return {symbols}; }

TEST(NgramModel, ProbabilitiesOfAllSymbolsAddUpToOneBehindAnyContext) {
  for (int order : {1, 2, 3, 5}) {
    NgramModel model(order, 4);
    model.Add(Symbols({1, 2, 1, 2, 3, 0}));
    model.Add(Symbols({1, 1, 0}));
    model.Add(Symbols({0}));
    model.Finish();
    for (const std::string& context :
         {Symbols({}), Symbols({1}), Symbols({1, 2, 1}), Symbols({3, 3, 3, 3})}) {
      double sum = 0;
      for (char symbol = 0; symbol < 4; ++symbol) {
        const double p = model.Probability(context + symbol, context.size());
        EXPECT_GT(p, 0);
        sum += p;
      }
      EXPECT_NEAR(sum, 1, 1e-12) << "order " << order << ", context of " << context.size();
    }
  }
}

TEST(NgramModel, CountsAreDiscountedAndShortContextsCountWhatTheyCameBehind) {
  NgramModel model(2, 2);
  model.Add(Symbols({1, 1, 0}));  // 1 at the beginning; behind 1 each of both once
  model.Finish();
  // Behind nothing: 0 came behind one symbol, 1 behind two; both discounted, and half of what that
  // frees goes to each.
  const double zero = 0.25 / 3 + 0.75 * 2 / 3 / 2, one = 1.25 / 3 + 0.75 * 2 / 3 / 2;
  EXPECT_NEAR(model.Probability(Symbols({1, 0}), 1), 0.25 / 2 + 0.75 * 2 / 2 * zero, 1e-12);
  EXPECT_NEAR(model.Probability(Symbols({1}), 0), 0.25 + 0.75 * one, 1e-12);
  EXPECT_NEAR(model.Probability(Symbols({0, 1}), 1), one, 1e-12);  // nothing came behind a 0
}

TEST(NgramModel, WhatCannotBeIsRefused) {
  EXPECT_THROW(NgramModel(0, 4), Error);
  EXPECT_THROW(NgramModel(2, 255), Error);
  NgramModel model(2, 4);
  EXPECT_THROW(model.Add(Symbols({4})), Error);
}

}  // namespace
}  // namespace tidepool::examples
