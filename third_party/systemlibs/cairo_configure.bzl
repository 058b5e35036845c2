"""@cairo: cairo, which draws pictures of curves. The repository always exists."""

_HEADER = """load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
package(default_visibility = ["//visibility:public"])
bool_setting(name = "found", build_setting_default = %r)
config_setting(name = "library_found", flag_values = {":found": "True"})
cc_library(
    name = "cairo",
    linkopts = %r,
)
"""

_LIBRARIES = ["/usr/lib/%s-linux-gnu/libcairo.so" % cpu for cpu in ["x86_64", "aarch64"]]

def _cairo_configure_impl(ctx):
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    found = (ctx.path("/usr/include/cairo/cairo-svg.h").exists and
             bool([library for library in _LIBRARIES if ctx.path(library).exists]))
    ctx.file("BUILD.bazel", _HEADER % (found, ["-lcairo"] if found else []))

cairo_configure = repository_rule(
    implementation = _cairo_configure_impl,
    doc = """Absence of cairo is data, not an error: `library_found` says whether Debian's
    libcairo2-dev is there.""",
    local = True,
    configure = True,
)
