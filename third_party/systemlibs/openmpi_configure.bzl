"""@openmpi: Open MPI, by which ranks of a job exchange bytes. The repository always exists."""

_HEADER = """load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])
bool_setting(name = "found", build_setting_default = %r)
config_setting(name = "library_found", flag_values = {":found": "True"})
"""

_LIBRARY = """
cc_library(
    name = "mpi",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = %r,
)
"""

_ROOT = "/usr/lib/%s-linux-gnu"

def _openmpi_configure_impl(ctx):
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    found = None
    for cpu in ["x86_64", "aarch64"]:
        root = _ROOT % cpu
        if ctx.path(root + "/openmpi/include/mpi.h").exists and ctx.path(root + "/libmpi.so").exists:
            found = root
    body = _HEADER % (found != None)
    if found:
        ctx.symlink(found + "/openmpi/include", "include")
        body += _LIBRARY % ["-lmpi"]
    else:
        body += "cc_library(name = \"mpi\")\n"
    ctx.file("BUILD.bazel", body)

openmpi_configure = repository_rule(
    implementation = _openmpi_configure_impl,
    doc = """Absence of Open MPI is data, not an error: `library_found` says whether Debian's
    libopenmpi-dev is there.""",
    local = True,
    configure = True,
)
