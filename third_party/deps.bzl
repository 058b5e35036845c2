"""Everything a dependent workspace has to call. A repository the dependent defined first wins."""

load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/systemlibs:absl.bzl", "ABSL_LIBRARIES")
load("//third_party/systemlibs:libtorch_configure.bzl", "libtorch_configure")
load("//third_party/systemlibs:onednn_configure.bzl", "onednn_configure")
load("//third_party/systemlibs:openmpi_configure.bzl", "openmpi_configure")
load("//third_party/systemlibs:system_repository.bzl", "system_repository")

# Bazel 4.2's own tools load @rules_cc; Debian's package of it does not fit that version.
_RULES_CC_DEFS = "\n".join([
    "%s = native.%s" % (rule, rule)
    for rule in ["cc_library", "cc_binary", "cc_test", "cc_import", "cc_toolchain", "cc_toolchain_suite"]
]) + "\n"

# Every cc_test refers to these two even when no coverage is collected.
_COVERAGE_TOOLS = """
filegroup(name = "coverage_report_generator")
filegroup(name = "Main")
"""

def _once(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

def tidepool_deps():
    """Defines every external repository Tidepool needs, from installed Debian packages."""
    for name, path in {
        "bazel_skylib": "/usr/share/bazel/tools/skylib",
        "platforms": "/usr/share/bazel/tools/platforms",
        "rules_java": "/usr/share/bazel/rules/java",
    }.items():
        _once(native.local_repository, name, path = path)
    _once(system_repository, "rules_cc", files = {"cc/defs.bzl": _RULES_CC_DEFS, "cc/BUILD.bazel": ""})
    _once(system_repository, "remote_coverage_tools", extra_build = _COVERAGE_TOOLS)
    _once(
        system_repository,
        "com_google_absl",
        libraries = ABSL_LIBRARIES,
        probe_headers = ["absl/status/status.h"],
        debian_package = "libabsl-dev",
    )
    _once(
        system_repository,
        "com_google_googletest",
        libraries = {
            ":gtest": ["-lgmock", "-lgtest", "-lpthread"],
            ":gtest_main": ["-lgmock_main", "-lgmock", "-lgtest", "-lpthread"],
        },
        probe_headers = ["gtest/gtest.h", "gmock/gmock.h"],
        debian_package = "libgtest-dev libgmock-dev",
    )
    _once(
        system_repository,
        "com_github_google_benchmark",
        libraries = {
            ":benchmark": ["-lbenchmark", "-lpthread"],
            ":benchmark_main": ["-lbenchmark_main", "-lbenchmark", "-lpthread"],
        },
        probe_headers = ["benchmark/benchmark.h"],
        debian_package = "libbenchmark-dev",
    )
    _once(
        system_repository,
        "XNNPACK",
        libraries = {":XNNPACK": ["-lXNNPACK", "-lpthreadpool", "-lcpuinfo", "-lpthread"]},
        probe_headers = ["xnnpack.h"],
        debian_package = "libxnnpack-dev",
    )
    _once(
        system_repository,
        "pthreadpool",
        libraries = {":pthreadpool": ["-lpthreadpool", "-lpthread"]},
        probe_headers = ["pthreadpool.h"],
        debian_package = "libpthreadpool-dev",
    )
    _once(
        system_repository,
        "cpuinfo",
        libraries = {":cpuinfo": ["-lcpuinfo"]},
        probe_headers = ["cpuinfo.h"],
        debian_package = "libcpuinfo-dev",
    )
    _once(
        system_repository,
        "zlib",
        libraries = {":zlib": ["-lz"]},
        probe_headers = ["zlib.h"],
        debian_package = "zlib1g-dev",
    )
    _once(
        system_repository,
        "com_github_nlohmann_json",
        libraries = {":json": []},
        probe_headers = ["nlohmann/json.hpp"],
        debian_package = "nlohmann-json3-dev",
    )
    _once(
        system_repository,
        "dlpack",
        libraries = {":dlpack": []},
        probe_headers = ["dlpack/dlpack.h"],
        debian_package = "libdlpack-dev",
    )
    _once(
        system_repository,
        "libzip",
        libraries = {":zip": ["-lzip"]},
        probe_headers = ["zip.h"],
        debian_package = "libzip-dev",
    )
    _once(
        system_repository,
        "cpp_httplib",
        libraries = {":httplib": ["-lcpp-httplib", "-lpthread"]},
        probe_headers = ["httplib.h"],
        debian_package = "libcpp-httplib-dev",
    )
    _once(
        system_repository,
        "libpng",
        libraries = {":png": ["-lpng"]},
        probe_headers = ["png.h"],
        debian_package = "libpng-dev",
    )
    _once(
        system_repository,
        "libjpeg",
        libraries = {":jpeg": ["-ljpeg"]},
        probe_headers = ["jpeglib.h"],
        debian_package = "libjpeg62-turbo-dev",
    )
    _once(
        system_repository,
        "eigen",
        libraries = {":eigen": []},
        probe_headers = ["eigen3/Eigen/Core"],
        debian_package = "libeigen3-dev",
    )
    _once(
        system_repository,
        "liburing",
        libraries = {":uring": ["-luring"]},
        probe_headers = ["liburing.h"],
        debian_package = "liburing-dev",
    )
    _once(
        system_repository,
        "xxhash",
        libraries = {":xxhash": ["-lxxhash"]},
        probe_headers = ["xxhash.h"],
        debian_package = "libxxhash-dev",
    )
    _once(cuda_configure, "local_config_cuda")
    _once(libtorch_configure, "libtorch")
    _once(onednn_configure, "onednn")
    _once(openmpi_configure, "openmpi")
