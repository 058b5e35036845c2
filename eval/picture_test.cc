// Pictures, looked at pixel by pixel.
#include "tidepool/eval/picture.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/png_image.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool IsBuilt() {
  try {
    CheckPicturesAreBuilt();
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(NoPictures, SayWhatIsMissing) {
  if (IsBuilt()) GTEST_SKIP() << "there is cairo";
  EXPECT_THAT(ErrorOf([] { DrawPicture({}, PictureFormat::kPng); }).message(),
              AllOf(HasSubstr("built without cairo"), HasSubstr("libcairo2-dev")));
}

class Picture : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsBuilt()) GTEST_SKIP() << "libcairo2-dev is not installed";
  }
};

// The pixels of a PNG.
class Pixels {
 public:
  explicit Pixels(const std::string& png) : size_(PngSizeOf(png)) {
    pixels_.resize(static_cast<size_t>(size_.height * size_.width * 3));
    DecodePng(png, size_, 3, absl::MakeSpan(pixels_));
  }
  ImageSize size() const { return size_; }
  // At a place of the axes; beyond 0 and 1 beside them.
  std::array<int, 3> At(double x, double y) const {
    const double scale = static_cast<double>(size_.width) / kPictureWidth;
    const auto column = static_cast<int64_t>(scale * (kPlotLeft + x * kPlotSize));
    const auto row = static_cast<int64_t>(scale * (kPlotTop + (1 - y) * kPlotSize));
    const auto at = static_cast<size_t>(3 * (row * size_.width + column));
    return {pixels_[at], pixels_[at + 1], pixels_[at + 2]};
  }
  bool IsWhite(double x, double y) const { return At(x, y) == std::array<int, 3>{255, 255, 255}; }
  // Some blue, and more of it than of red: the first curve's colour.
  bool IsFirst(double x, double y) const {
    const std::array<int, 3> at = At(x, y);
    return at[2] > 120 && at[0] < 60;
  }
  bool IsSecond(double x, double y) const {
    const std::array<int, 3> at = At(x, y);
    return at[0] > 180 && at[2] < 60;
  }
  bool IsGrey(double x, double y) const {
    const std::array<int, 3> at = At(x, y);
    return at[0] < 250 && at[0] == at[1] && at[1] == at[2];
  }
  // Whether there is something in a part of the picture, in points.
  bool HasInk(double left, double top, double right, double bottom) const {
    const double scale = static_cast<double>(size_.width) / kPictureWidth;
    for (auto row = static_cast<int64_t>(scale * top); row < static_cast<int64_t>(scale * bottom);
         ++row) {
      for (auto column = static_cast<int64_t>(scale * left);
           column < static_cast<int64_t>(scale * right); ++column) {
        if (pixels_[static_cast<size_t>(3 * (row * size_.width + column))] < 100) return true;
      }
    }
    return false;
  }

 private:
  ImageSize size_;
  std::vector<uint8_t> pixels_;
};

CurvePlot TwoCurves() {
  CurvePlot plot{.title = "Title", .x_title = "x", .y_title = "y"};
  plot.curves.push_back({.points = {{0, 0}, {1, 1}}, .is_reference = true});
  plot.curves.push_back({.label = "first", .points = {{0, 0}, {0, 0.5}, {1, 0.5}}});
  plot.curves.push_back({.label = "second", .points = {{0.25, 0}, {0.25, 1}}});
  return plot;
}

TEST_F(Picture, CurvesAreWhereTheirPointsAre) {
  const Pixels pixels(DrawPicture(TwoCurves(), PictureFormat::kPng));
  EXPECT_EQ(pixels.size(), (ImageSize{1280, 1280}));
  for (const double at : {0.05, 0.3, 0.7, 0.95}) EXPECT_TRUE(pixels.IsFirst(at, 0.5)) << at;
  for (const double at : {0.05, 0.3, 0.48, 0.7, 0.95}) EXPECT_TRUE(pixels.IsSecond(0.25, at)) << at;
  EXPECT_TRUE(pixels.IsFirst(0, 0.3));
  EXPECT_TRUE(pixels.IsWhite(0.1, 0.3));
  EXPECT_TRUE(pixels.IsWhite(0.7, 0.9));
  // The dashed one is there in places, and nowhere else.
  int on = 0;
  for (double at = 0.51; at < 0.6; at += 0.001) on += pixels.IsGrey(at, at);
  EXPECT_GT(on, 30);
  EXPECT_LT(on, 85);
}

TEST_F(Picture, AxesHaveTicksNumbersAndTitles) {
  CurvePlot plot = TwoCurves();
  plot.curves.clear();
  const Pixels pixels(DrawPicture(plot, PictureFormat::kPng));
  const double bottom = kPlotTop + kPlotSize, right = kPlotLeft + kPlotSize;
  for (int i = 0; i <= 5; ++i) {
    const double x = kPlotLeft + i * kPlotSize / 5, y = kPlotTop + i * kPlotSize / 5;
    EXPECT_TRUE(pixels.HasInk(x - 1, bottom + 1, x + 1, bottom + 4)) << "tick " << i;
    EXPECT_TRUE(pixels.HasInk(x - 12, bottom + 8, x + 12, bottom + 22)) << "number " << i;
    EXPECT_TRUE(pixels.HasInk(kPlotLeft - 4, y - 1, kPlotLeft - 1, y + 1)) << "tick " << i;
    EXPECT_TRUE(pixels.HasInk(kPlotLeft - 32, y - 7, kPlotLeft - 8, y + 7)) << "number " << i;
    if (i > 0 && i < 5) {
      EXPECT_FALSE(pixels.IsWhite(i / 5.0, 0.53)) << "grid " << i;
    }
    EXPECT_FALSE(pixels.HasInk(x + 14, bottom + 6, std::min(x + 80, right + 30), bottom + 24)) << i;
  }
  EXPECT_TRUE(pixels.HasInk(0.4 * kPictureWidth, 2, 0.7 * kPictureWidth, kPlotTop - 8)) << "title";
  EXPECT_TRUE(pixels.HasInk(0.4 * kPictureWidth, bottom + 28, 0.7 * kPictureWidth, kPictureHeight))
      << "x";
  EXPECT_TRUE(pixels.HasInk(2, 0.4 * kPictureHeight, 34, 0.6 * kPictureHeight)) << "y";
  // No curve, no legend.
  EXPECT_TRUE(pixels.IsWhite(0.95, 0.05));
}

TEST_F(Picture, TheLegendIsInItsCorner) {
  for (const auto& [corner, x, y] : std::vector<std::tuple<CurvePlot::Corner, double, double>>{
           {CurvePlot::Corner::kTopLeft, 0.05, 0.95},
           {CurvePlot::Corner::kBottomLeft, 0.05, 0.05},
           {CurvePlot::Corner::kBottomRight, 0.9, 0.05}}) {
    CurvePlot plot{.legend = corner};
    plot.curves.push_back({.label = "a curve", .points = {{0.5, 0.45}, {0.5, 0.55}}});
    const Pixels pixels(DrawPicture(plot, PictureFormat::kPng));
    const double left = kPlotLeft + x * kPlotSize - 26, top = kPlotTop + (1 - y) * kPlotSize - 26;
    EXPECT_TRUE(pixels.HasInk(left, top, left + 52, top + 52)) << x << " " << y;
    plot.curves[0].label.clear();
    const Pixels none(DrawPicture(plot, PictureFormat::kPng));
    EXPECT_FALSE(none.HasInk(left + 4, top + 4, left + 48, top + 48)) << x << " " << y;
  }
}

TEST_F(Picture, BarsAreBehindCurvesAndDotsAtPoints) {
  CurvePlot plot = TwoCurves();
  plot.bars.push_back({0.6, 0.8, 0.3});
  plot.curves[1].has_dots = true;
  const Pixels pixels(DrawPicture(plot, PictureFormat::kPng));
  const std::array<int, 3> bar = pixels.At(0.7, 0.1);
  EXPECT_GT(bar[2], bar[0]);
  EXPECT_GT(bar[0], 190);
  EXPECT_TRUE(pixels.IsWhite(0.55, 0.1));
  EXPECT_TRUE(pixels.IsWhite(0.7, 0.31));
  // Beside the line, where a dot is.
  EXPECT_TRUE(pixels.IsFirst(0.002, 0.5 + 2.5 / kPlotSize));
  EXPECT_FALSE(pixels.IsFirst(0.05, 0.5 + 2.5 / kPlotSize));
}

// A saw of half a picture's height from threshold to threshold, and a curve of a million points.
TEST_F(Picture, PointsThatCannotBeToldApartCostNothing) {
  CurvePlot plot;
  plot.curves.emplace_back();
  for (int i = 0; i <= 1000000; ++i) {
    const double x = i / 1e6;
    plot.curves[0].points.push_back({x, x * x});
  }
  const std::string svg = DrawPicture(plot, PictureFormat::kSvg);
  EXPECT_LT(svg.size(), 200000u);
  const Pixels pixels(DrawPicture(plot, PictureFormat::kPng));
  for (const double x : {0.1, 0.5, 0.73, 0.999}) EXPECT_TRUE(pixels.IsFirst(x, x * x)) << x;
  plot.curves[0].points.clear();
  for (int i = 0; i <= 100; ++i)
    plot.curves[0].points.push_back({0.5 + i * 1e-6, i % 2 == 0 ? 0.2 : 0.8});
  const Pixels saw(DrawPicture(plot, PictureFormat::kPng));
  for (const double y : {0.21, 0.5, 0.79}) EXPECT_TRUE(saw.IsFirst(0.5, y)) << y;
}

TEST_F(Picture, OfTheSamePlotHasTheSamePixels) {
  EXPECT_TRUE(DrawPicture(TwoCurves(), PictureFormat::kPng) ==
              DrawPicture(TwoCurves(), PictureFormat::kPng));
}

TEST_F(Picture, TextMayBeAnything) {
  CurvePlot plot = TwoCurves();
  plot.title = std::string("\xff<&\"\0\n", 6) + "\xc3\xa9\xf0\x9f\x98\x80";
  plot.curves[1].label = "\x80";
  EXPECT_GT(DrawPicture(plot, PictureFormat::kPng).size(), 1000u);
  EXPECT_THAT(DrawPicture(plot, PictureFormat::kSvg),
              AllOf(StartsWith("<?xml"), HasSubstr("<svg "), HasSubstr("</svg>")));
}

TEST_F(Picture, IsSavedByTheEndOfItsName) {
  const std::filesystem::path folder = testing::TempDir();
  const auto start_of = [&](const std::string& name) {
    SavePicture(TwoCurves(), folder / name);
    std::ifstream file(folder / name, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    std::filesystem::remove(folder / name);
    return bytes.substr(0, 5);
  };
  EXPECT_EQ(start_of("curves.svg"), "<?xml");
  EXPECT_EQ(start_of("curves.PNG"), "\x89PNG\r");
  EXPECT_THAT(ErrorOf([&] { SavePicture(TwoCurves(), folder / "curves.pdf"); }).message(),
              HasSubstr("curves.pdf, expected one that ends in .png or .svg"));
  EXPECT_EQ(ErrorOf([&] { SavePicture(TwoCurves(), folder / "none" / "curves.svg"); }).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidepool
