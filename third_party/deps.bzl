"""Everything a dependent workspace has to call. A repository the dependent defined first wins."""

load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/systemlibs:absl.bzl", "ABSL_LIBRARIES")
load("//third_party/systemlibs:cairo_configure.bzl", "cairo_configure")
load("//third_party/systemlibs:libtorch_configure.bzl", "libtorch_configure")
load("//third_party/systemlibs:onednn_configure.bzl", "onednn_configure")
load("//third_party/systemlibs:openmpi_configure.bzl", "openmpi_configure")
load("//third_party/systemlibs:system_files_repository.bzl", "system_files_repository")
load("//third_party/systemlibs:system_repository.bzl", "system_repository")

# What //tools:rules.bzl loads.
_RULES = """
load("@rules_cc//cc:action_names.bzl", _ACTION_NAMES = "ACTION_NAMES")
load(
    "@rules_cc//cc:defs.bzl",
    _CcInfo = "CcInfo",
    _cc_binary = "cc_binary",
    _cc_common = "cc_common",
    _cc_library = "cc_library",
    _cc_test = "cc_test",
)
load("@rules_cc//cc:find_cc_toolchain.bzl", _find_cc_toolchain = "find_cc_toolchain")
load("@rules_shell//shell:sh_test.bzl", _sh_test = "sh_test")

ACTION_NAMES = _ACTION_NAMES
CcInfo = _CcInfo
cc_binary = _cc_binary
cc_common = _cc_common
cc_library = _cc_library
cc_test = _cc_test
find_cc_toolchain = _find_cc_toolchain
sh_test = _sh_test
"""

# Bazel 4.2's own tools load @rules_cc; Debian's package of it does not fit that version. What _RULES and
# BUILD files of a workspace load by upstream's labels is the built-in rule here. A name cannot be loaded and defined
# in one file, so what is not native goes through a second one.
_RULES_CC = {
    "cc/BUILD.bazel": "",
    "cc/action_names.bzl": """
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", _names = "ACTION_NAMES")
ACTION_NAMES = _names
""",
    "cc/builtin.bzl": "builtin = struct(CcInfo = CcInfo, cc_common = cc_common)\n",
    "cc/defs.bzl": "load(\":builtin.bzl\", \"builtin\")\nCcInfo = builtin.CcInfo\ncc_common = builtin.cc_common\n" + "\n".join([
        "%s = native.%s" % (rule, rule)
        for rule in ["cc_library", "cc_binary", "cc_test", "cc_import", "cc_toolchain", "cc_toolchain_suite"]
    ]) + "\n",
    "cc/find_cc_toolchain.bzl": """
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
find_cc_toolchain = find_cpp_toolchain
""",
}
_RULES_SHELL = {
    "shell/BUILD.bazel": "",
    "shell/sh_test.bzl": "sh_test = native.sh_test\n",
}

# Every cc_test refers to these two even when no coverage is collected.
_COVERAGE_TOOLS = """
filegroup(name = "coverage_report_generator")
filegroup(name = "Main")
"""

def define_libraries(define):
    """Libraries that Tidepool needs, from installed Debian packages.

    Args:
      define: called with a repository rule, a name and the rule's attributes.
    """
    define(system_repository, "tidepool_deps_was_not_called", files = {"rules.bzl": _RULES})
    define(
        system_repository,
        "com_google_absl",
        libraries = ABSL_LIBRARIES,
        probe_headers = ["absl/status/status.h"],
        debian_package = "libabsl-dev",
    )
    define(
        system_repository,
        "com_google_googletest",
        libraries = {
            ":gtest": ["-lgmock", "-lgtest", "-lpthread"],
            ":gtest_main": ["-lgmock_main", "-lgmock", "-lgtest", "-lpthread"],
        },
        probe_headers = ["gtest/gtest.h", "gmock/gmock.h"],
        debian_package = "libgtest-dev libgmock-dev",
    )
    define(
        system_repository,
        "com_github_google_benchmark",
        libraries = {
            ":benchmark": ["-lbenchmark", "-lpthread"],
            ":benchmark_main": ["-lbenchmark_main", "-lbenchmark", "-lpthread"],
        },
        probe_headers = ["benchmark/benchmark.h"],
        debian_package = "libbenchmark-dev",
    )
    define(
        system_repository,
        "XNNPACK",
        libraries = {":XNNPACK": ["-lXNNPACK", "-lpthreadpool", "-lcpuinfo", "-lpthread"]},
        probe_headers = ["xnnpack.h"],
        debian_package = "libxnnpack-dev",
    )
    define(
        system_repository,
        "pthreadpool",
        libraries = {":pthreadpool": ["-lpthreadpool", "-lpthread"]},
        probe_headers = ["pthreadpool.h"],
        debian_package = "libpthreadpool-dev",
    )
    define(
        system_repository,
        "cpuinfo",
        libraries = {":cpuinfo": ["-lcpuinfo"]},
        probe_headers = ["cpuinfo.h"],
        debian_package = "libcpuinfo-dev",
    )
    define(
        system_repository,
        "zlib",
        libraries = {":zlib": ["-lz"]},
        probe_headers = ["zlib.h"],
        debian_package = "zlib1g-dev",
    )
    define(
        system_repository,
        "com_github_nlohmann_json",
        libraries = {":json": []},
        probe_headers = ["nlohmann/json.hpp"],
        debian_package = "nlohmann-json3-dev",
    )
    define(
        system_repository,
        "dlpack",
        libraries = {":dlpack": []},
        probe_headers = ["dlpack/dlpack.h"],
        debian_package = "libdlpack-dev",
    )
    define(
        system_repository,
        "libzip",
        libraries = {":zip": ["-lzip"]},
        probe_headers = ["zip.h"],
        debian_package = "libzip-dev",
    )
    define(
        system_repository,
        "cpp_httplib",
        libraries = {":httplib": ["-lcpp-httplib", "-lpthread"]},
        probe_headers = ["httplib.h"],
        debian_package = "libcpp-httplib-dev",
    )
    define(
        system_repository,
        "libpng",
        libraries = {":png": ["-lpng"]},
        probe_headers = ["png.h"],
        debian_package = "libpng-dev",
    )
    define(
        system_repository,
        "libjpeg",
        libraries = {":jpeg": ["-ljpeg"]},
        probe_headers = ["jpeglib.h"],
        debian_package = "libjpeg62-turbo-dev",
    )
    define(
        system_files_repository,
        "dygraphs",
        files = {
            "dygraph.min.js": "/usr/share/javascript/dygraphs/dygraph.min.js",
            "dygraph.min.css": "/usr/share/javascript/dygraphs/dygraph.min.css",
            "copyright": "/usr/share/doc/libjs-dygraphs/copyright",
        },
        debian_package = "libjs-dygraphs",
    )
    define(
        system_repository,
        "eigen",
        libraries = {":eigen": []},
        probe_headers = ["eigen3/Eigen/Core"],
        debian_package = "libeigen3-dev",
    )
    define(
        system_repository,
        "liburing",
        libraries = {":uring": ["-luring"]},
        probe_headers = ["liburing.h"],
        debian_package = "liburing-dev",
    )
    define(
        system_repository,
        "lz4",
        libraries = {":lz4": ["-llz4"]},
        probe_headers = ["lz4.h"],
        debian_package = "liblz4-dev",
    )
    define(
        system_repository,
        "xxhash",
        libraries = {":xxhash": ["-lxxhash"]},
        probe_headers = ["xxhash.h"],
        debian_package = "libxxhash-dev",
    )
    define(cairo_configure, "cairo")
    define(cuda_configure, "local_config_cuda")
    define(libtorch_configure, "libtorch")
    define(onednn_configure, "onednn")
    define(openmpi_configure, "openmpi")

def _once(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

def tidepool_deps():
    """Defines every external repository Tidepool needs: Bazel's own of Debian's packages, and the libraries."""
    for name, path in {
        "bazel_skylib": "/usr/share/bazel/tools/skylib",
        "platforms": "/usr/share/bazel/tools/platforms",
        "rules_java": "/usr/share/bazel/rules/java",
    }.items():
        _once(native.local_repository, name, path = path)
    _once(system_repository, "rules_cc", files = _RULES_CC)
    _once(system_repository, "rules_shell", files = _RULES_SHELL)
    _once(system_repository, "remote_coverage_tools", extra_build = _COVERAGE_TOOLS)
    define_libraries(_once)
