"""The libraries of deps.bzl as a module extension: the same repositories, under the same names, for Bazel with modules.

In a MODULE.bazel:

    libraries = use_extension("@tidepool//third_party:extensions.bzl", "libraries")
    use_repo(libraries, "com_google_googletest")                 # those that your own targets name
    libraries.from_module(name = "com_google_absl", module = "@abseil-cpp")    # a module in place of the system's
"""

load("//third_party:deps.bzl", "define_libraries")
load("//third_party/registry:module_repository.bzl", "module_repository")

def _libraries_impl(ctx):
    modules = {}
    for module in ctx.modules:
        for tag in module.tags.from_module:
            # Modules come from the root on: what the root says of a library counts.
            modules.setdefault(tag.name, tag.module)

    def define(rule, name, **kwargs):
        module = modules.pop(name, None)
        if module == None:
            rule(name = name, **kwargs)
        elif "libraries" not in kwargs:
            fail("from_module: @%s cannot come from a module" % name)
        else:
            module_repository(name = name, module = module, targets = kwargs["libraries"].keys())

    define_libraries(define)
    if modules:
        fail("from_module: found %s, expected libraries of third_party/deps.bzl" % ", ".join(modules.keys()))

libraries = module_extension(
    implementation = _libraries_impl,
    tag_classes = {
        "from_module": tag_class(
            doc = "The library is that of a module, whose targets are called as in third_party/deps.bzl.",
            attrs = {
                "name": attr.string(mandatory = True, doc = "of the repository"),
                "module": attr.label(mandatory = True, doc = "any label in it"),
            },
        ),
    },
)
