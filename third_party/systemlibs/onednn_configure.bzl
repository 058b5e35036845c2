"""@onednn: oneDNN, a second provider of CPU kernels. The repository always exists."""

_HEADER = """load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])
bool_setting(name = "found", build_setting_default = %r)
config_setting(name = "library_found", flag_values = {":found": "True"})
cc_library(
    name = "dnnl",
    linkopts = %r,
)
"""

_CONFIG = "/usr/include/oneapi/dnnl/dnnl_config.h"
_LIBRARIES = ["/usr/lib/%s-linux-gnu/libdnnl.so" % cpu for cpu in ["x86_64", "aarch64"]]

# Builds that our threads can run on: OpenMP regions are told to have one thread.
_RUNTIMES = {"DNNL_RUNTIME_OMP": ["-lgomp"], "DNNL_RUNTIME_SEQ": []}

def _linkopts(ctx):
    """Linker options of the installed library; None where there is none that fits."""
    if not ctx.path(_CONFIG).exists or not ctx.path("/usr/include/dnnl.hpp").exists:
        return None
    if not [library for library in _LIBRARIES if ctx.path(library).exists]:
        return None
    for line in ctx.read(_CONFIG).split("\n"):
        words = line.split(" ")
        if words[:2] == ["#define", "DNNL_CPU_THREADING_RUNTIME"] and words[2] in _RUNTIMES:
            return ["-ldnnl"] + _RUNTIMES[words[2]]
    return None

def _onednn_configure_impl(ctx):
    linkopts = _linkopts(ctx)
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD.bazel", _HEADER % (linkopts != None, linkopts or []))

onednn_configure = repository_rule(
    implementation = _onednn_configure_impl,
    doc = """Absence of oneDNN is data, not an error: `library_found` says whether Debian's libdnnl-dev
    is there, built for OpenMP or for one thread.""",
    local = True,
    configure = True,
)
