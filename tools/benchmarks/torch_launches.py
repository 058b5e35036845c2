#!/usr/bin/env python3
"""How many kernels PyTorch's compiled training step launches on a CUDA device, counted without one.

    pip install torch
    python3 tools/benchmarks/torch_launches.py

The networks, the loss and the optimizer of torch_training.py --mode=compiled are traced with arrays that have no bytes, and
torch.compile's code for CUDA is generated (TorchInductor, its default mode) as for an NVIDIA H100, whose properties are told
to it here. What that code calls is counted and not run: `own` are Triton's kernels, `library` calls of cuBLAS, cuDNN and
attention, each taken as one kernel, though some are two or three (workspaces that are cleared, layouts that are changed,
sums in parts): the true number is not smaller. The optimizer is fused and in both tables one launch for all parameters that
fit one (it takes about 110 arrays); zero_grad(set_to_none=True) is none.
"""
import argparse
import collections
import copy
import re
import sys
import types

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_training

H100 = types.SimpleNamespace(name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, warp_size=32,
                             regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
                             shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
                             shared_memory_per_multiprocessor=233472, L2_cache_size=50 << 20, gcnArchName="")


def pretend():
    """That there is an H100, to whoever asks before code is generated."""
    torch.cuda.get_device_properties = lambda *_: H100
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    from torch._dynamo import device_interface
    from torch._inductor import compile_fx, scheduler  # scheduler: it is patched below
    from torch.utils import _triton
    import triton
    from triton.backends.compiler import GPUTarget

    triton.runtime.driver.set_active(types.SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32)))
    asked = _triton.has_triton
    for module in list(sys.modules.values()):
        if getattr(module, "has_triton", None) is asked:
            module.has_triton = lambda *_, **__: True

    interface = device_interface.CudaInterface
    interface.Worker.get_device_properties = staticmethod(lambda *_: H100)
    interface.get_device_properties = staticmethod(lambda *_: H100)
    interface.get_compute_capability = staticmethod(lambda *_: 90)
    interface.is_triton_capable = staticmethod(lambda *_: True)
    interface.raise_if_triton_unavailable = staticmethod(lambda *_: None)
    return compile_fx


def inputs_mode(inputs):
    return next(x.fake_mode for x in inputs if hasattr(x, "fake_mode"))


class Generated(Exception):
    """Thrown where the code would be compiled; its text."""


def calls_of(code):
    """Launches in the generated wrapper, by name."""
    counts = collections.Counter()
    for line in code.split("\n"):
        own = re.match(r"\s+(triton_\w+)\.run\(", line)
        library = re.search(r"(extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", line)
        if own:
            counts["own", own.group(1)] += 1
        elif library:
            # Of a convolution's gradients: by which of input, filter and bias there are.
            wanted = re.search(r"convolution_backward.*\[((?:True|False)(?:, (?:True|False))*)\]\)", line)
            counts["library", library.group(1)] += wanted.group(1).count("True") if wanted else 1
    return counts


def count(model, batch, verbose):
    compile_fx = pretend()
    from torch._inductor.graph import GraphLowering

    def generate(self):
        raise Generated(self.codegen()[0].value)

    GraphLowering.compile_to_module = generate
    counts, codes = collections.Counter(), []

    def on_cuda(value):
        if isinstance(value, torch.device) or value == "cpu":
            return torch.device("cuda", 0)
        return value

    def inner(module, inputs, **options):
        moved = copy.deepcopy(module)
        for node in moved.graph.nodes:
            node.args = torch.fx.map_arg(node.args, lambda n: n)
            node.kwargs = {name: on_cuda(value) if name == "device" else value for name, value in node.kwargs.items()}
        moved.recompile()
        with inputs_mode(inputs):
            there = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda") if torch.is_tensor(x) else x for x in inputs]
        options = {"cudagraphs": torch._inductor.utils.BoxedBool(False), **options}
        try:
            with torch.utils._python_dispatch._disable_current_modes(), torch._inductor.debug.DebugContext():
                compile_fx.fx_codegen_and_compile(moved, there, inputs_to_check=[], **options)
        except Exception as error:
            generated = error
            while generated is not None and not isinstance(generated, Generated):
                generated = generated.__cause__ or generated.__context__
            if generated is None:
                raise
            codes.append(str(generated))
            counts.update(calls_of(codes[-1]))
        return torch._functorch.aot_autograd.make_boxed_func(module.forward)

    def backend(module, inputs):
        return compile_fx.compile_fx(module, inputs, inner_compile=inner)

    torch.manual_seed(1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        network = torch_training.network_of(model, 28, 28, 10).train()
        for module in network.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                if parameter.dim() == 4:
                    setattr(module, name, torch.nn.Parameter(parameter.detach().to(memory_format=torch.channels_last)))
        features = torch.empty(batch, 1, 28, 28).to(memory_format=torch.channels_last)
        labels = torch.zeros(batch, dtype=torch.int64)
        compiled = torch.compile(lambda x, y: F.cross_entropy(network(x), y), backend=backend)
        compiled(features, labels).backward()
    parameters = sum(p.requires_grad for p in network.parameters())
    if verbose:
        for code in codes:
            print(code, file=sys.stderr)
    return counts, -(-parameters // 110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,lenet,residual,transformer")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--code", action="store_true", help="print the generated code to the standard error")
    arguments = parser.parse_args()
    print(f"PyTorch {torch.__version__}, code for {H100.name}, batch {arguments.batch}")
    print("| network | own | library | optimizer | launches |\n| --- | --- | --- | --- | --- |")
    for model in arguments.models.split(","):
        torch._dynamo.reset()
        counts, optimizer = count(model, arguments.batch, arguments.code)
        own = sum(n for (kind, _), n in counts.items() if kind == "own")
        library = sum(n for (kind, _), n in counts.items() if kind == "library")
        print(f"| {model} | {own} | {library} | {optimizer} | {own + library + optimizer} |", flush=True)


if __name__ == "__main__":
    main()
