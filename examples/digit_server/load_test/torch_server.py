#!/usr/bin/env python3
"""The same service by PyTorch: POST /digits answers raw images by the weights of a saved model.

    pip install torch
    python3 examples/digit_server/load_test/torch_server.py --model=digits.safetensors --port=8081

For load_test to compare with. As in digit_server what waits is computed together, up to --batch_limit images,
at most --queue_limit requests wait (503 beyond) and none longer than --deadline_ms (504). Models of dense, conv2d
and max_pool2d layers; the file is read by its description (safetensors), without a package for it.
"""
import argparse
import asyncio
import json
import struct
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("torch_server.py: no torch; pip install torch")


def read_model(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    network = json.loads(header.pop("__metadata__")["network"])
    tensors = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = torch.frombuffer(data[begin:end], dtype=torch.float32)
        tensors[name] = values.reshape(tensor["shape"]).clone()
    return network, tensors


class Model:
    """Images [n, height, width, 1] in, probabilities out. Convolutions are NCHW, as PyTorch has them."""

    def __init__(self, path):
        network, tensors = read_model(path)
        self.height, self.width, _ = network["inputs"][0]["shape"]
        self.steps = []
        for layer in network["layers"]:
            kind, name = layer["kind"], layer["name"]
            if kind == "conv2d":
                weight = tensors[f"{name}.filter"].permute(0, 3, 1, 2).contiguous()
                if any(layer["padding"]) or layer["dilation"] != [1, 1] or layer["groups"] != 1:
                    sys.exit(f"torch_server.py: {path}: {name}: padding, dilation or groups")
                self.steps.append(("conv2d", weight, tensors[f"{name}.bias"], layer))
            elif kind == "max_pool2d":
                self.steps.append(("max_pool2d", None, None, layer))
            elif kind == "dense":
                self.steps.append(("dense", tensors[f"{name}.weight"], tensors[f"{name}.bias"], layer))
            else:
                sys.exit(f"torch_server.py: {path}: {name}: found {kind}, expected dense, conv2d or max_pool2d")

    def __call__(self, x):
        x = x.permute(0, 3, 1, 2)
        for kind, weight, bias, layer in self.steps:
            if kind == "conv2d":
                x = F.conv2d(x, weight, bias, stride=layer["stride"])
            elif kind == "max_pool2d":
                x = F.max_pool2d(x, layer["kernel"], layer["stride"])
            else:
                if x.dim() == 4:  # as ours lie
                    x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
                x = F.linear(x, weight, bias)
            if layer.get("activation") == "relu":
                x = F.relu(x)
        return torch.softmax(x, 1)


class Server:

    def __init__(self, model, options):
        self.model, self.options = model, options
        self.waiting, self.wakes = [], asyncio.Event()

    async def compute(self):
        pixels = self.model.height * self.model.width
        while True:
            await self.wakes.wait()
            now, batch, images = time.monotonic(), [], 0
            while self.waiting:
                body, until, done = self.waiting[0]
                if batch and images + len(body) // pixels > self.options.batch_limit:
                    break
                self.waiting.pop(0)
                if until < now:
                    done.set_result((504, {"error": "no worker was free by the request's deadline"}))
                    continue
                batch.append((body, done))
                images += len(body) // pixels
            if not self.waiting:
                self.wakes.clear()
            if not batch:
                continue
            with torch.inference_mode():
                x = torch.frombuffer(bytearray(b"".join(body for body, _ in batch)), dtype=torch.uint8)
                x = x.reshape(-1, self.model.height, self.model.width, 1).float() / 255
                best = torch.max(self.model(x), 1)
                digits = list(zip(best.indices.tolist(), best.values.tolist()))
            at = 0
            for body, done in batch:
                count = len(body) // pixels
                found = [{"digit": d, "probability": p} for d, p in digits[at:at + count]]
                at += count
                if not done.cancelled():
                    done.set_result((200, {"digits": found}))
            await asyncio.sleep(0)  # answers are sent before the next batch

    def answer(self, body):
        done = asyncio.get_running_loop().create_future()
        pixels = self.model.height * self.model.width
        if not body or len(body) % pixels:
            done.set_result((400, {"error": f"found {len(body)} bytes, expected a multiple of {pixels}"}))
        elif len(self.waiting) >= self.options.queue_limit:
            done.set_result((503, {"error": f"{len(self.waiting)} requests wait; try again later"}))
        else:
            self.waiting.append((body, time.monotonic() + self.options.deadline_ms / 1000, done))
            self.wakes.set()
        return done

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                at = head.find(b"content-length:")
                length = int(head[at + 15:head.index(b"\r\n", at)]) if at >= 0 else 0
                status, answer = await self.answer(await reader.readexactly(length))
                text = json.dumps(answer).encode()
                retry = b"Retry-After: 1\r\n" if status == 503 else b""
                writer.write(b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" %
                             (status, retry, len(text), text))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch_limit", type=int, default=32)
    parser.add_argument("--queue_limit", type=int, default=32)
    parser.add_argument("--deadline_ms", type=int, default=10000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    server = Server(Model(options.model), options)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", options.port, backlog=256)
    port = listening.sockets[0].getsockname()[1]
    print(f"torch_server: listens on port {port}", flush=True)
    await server.compute()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
