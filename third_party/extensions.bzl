"""The libraries of deps.bzl as a module extension: the same repositories, under the same names, for Bazel with modules.

In a MODULE.bazel:

    libraries = use_extension("@tidepool//third_party:extensions.bzl", "libraries")
    use_repo(libraries, "com_google_googletest")                 # those that your own targets name
    override_repo(libraries, com_google_absl = "abseil-cpp")     # a module of yours in place of the system's (Bazel 7.4)
"""

load("//third_party:deps.bzl", "define_libraries")

def _define(rule, name, **kwargs):
    rule(name = name, **kwargs)

def _libraries_impl(_ctx):
    define_libraries(_define)

libraries = module_extension(implementation = _libraries_impl)
