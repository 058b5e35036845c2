#!/usr/bin/env python3
"""Reads a record of Tidepool (docs/recording.md) and prints its events as CSV.

    from read_record import read_record
    for number, nanoseconds, thread, what, block, bytes, alignment, kind, owner, device in read_record(path): ...

A file that ends within a block, or has one that is damaged, is read up to there.
"""
import struct
import sys
import zlib

OPS = ["allocate", "free", "cycle_begin", "cycle_end"]
KINDS = ["allocated", "external", "unreferenced", "workspace", "gradient standard", "gradient external",
         "gradient deferred"]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def read_record(path):
    """Events by number, those of what was live before first, each (number, ..., device) as above."""
    data = open(path, "rb").read()
    magic, version, _, _, _, _, checksum = struct.unpack_from("<16sIIQqII", data)
    if magic != b"tidepool record\0" or version != 1 or zlib.crc32(data[:44]) != checksum:
        raise ValueError(f"{path}: no record of version 1")
    names, found, at = {0: ""}, {2: [], 3: []}, 48
    while at + 40 <= len(data):
        marker, kind, size, thread, number, time, _, checksum = struct.unpack_from("<IIIIQqII", data, at)
        body = data[at + 40:at + 40 + size]
        if marker != 0x42504454 or size > 1 << 20 or len(body) < size or kind == 4:
            break
        if zlib.crc32(body, zlib.crc32(data[at:at + 36])) != checksum:
            break
        at, p, number, key, context = at + 40 + size, 0, number - 1, 0, ("allocated", "", "")
        while kind == 1 and p < size:
            name, p = varint(body, p)
            length, p = varint(body, p)
            names[name], p = body[p:p + length].decode("utf-8", "replace"), p + length
        while kind != 1 and p < size:
            first, p = body[p], p + 1
            if first & 7 == 4:  # time goes on
                change, p = varint(body, p)
                time += change
                continue
            alignment = first >> 3 & 15
            if alignment == 15:
                alignment, p = body[p], p + 1
            if first & 128:
                of, (device, p) = KINDS[body[p]], varint(body, p + 1)
                owner, p = varint(body, p)
                context = (of, names[owner], names[device])
            change, p = varint(body, p)
            number += change + 1
            event, p = varint(body, p)  # a block's key, or a cycle's name
            amount = 0
            if first & 7 < 2:
                key = event = (key + (event >> 1 ^ -(event & 1))) % 2**64
            if first & 7 != 1:
                amount, p = varint(body, p)
            what, place = OPS[first & 7], context if first & 7 == 0 else ("allocated", "", "")
            if first & 7 > 1:
                event, place = 0, ("allocated", names[event], "")
            found[kind].append((number, time, thread, what, event, amount, alignment) + place)
    return sorted(found[2]) + sorted(found[3])


if __name__ == "__main__":
    print("number,nanoseconds,thread,what,block,bytes,alignment,kind,owner,device")
    for line in read_record(sys.argv[1]):
        print(",".join(str(field) for field in line))
