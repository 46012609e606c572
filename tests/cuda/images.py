# SPDX-License-Identifier: Apache-2.0
"""images.py FATBIN LOG KERNEL...   Does the image hold machine code for sm_80 and sm_90 and PTX, with all kernels, and
did the assembler (LOG: what it said with -v) keep their variables in registers?  Prints what there is."""
import re
import struct
import sys

MAGIC, PTX, ELF = 0xBA55ED50, 1, 2
# Bytes a thread: what a tile begins with may be kept in memory while the tile is moved, once in 64 KiB.
SPILLED = 128


def entries(image):
    """(kind, chip, payload) of a fatbin: a header, then entries with a header each."""
    magic, _, header, size = struct.unpack_from("<IHHQ", image, 0)
    assert magic == MAGIC and header + size == len(image), "no fatbin"
    at = header
    while at < len(image):
        kind, _, header, size = struct.unpack_from("<HHIQ", image, at)
        chip, = struct.unpack_from("<I", image, at + 28)
        yield kind, chip, image[at + header:at + header + size]
        at += header + size


def main(fatbin, log, *kernels):
    with open(fatbin, "rb") as f:
        found = list(entries(f.read()))
    with open(log, encoding="utf-8") as f:
        said = f.read()
    have = {(kind, chip) for kind, chip, _ in found}
    want = {(ELF, 80), (ELF, 90), (PTX, 90)}
    bad = [f"it lacks {'machine code' if k == ELF else 'PTX'} for {c}" for k, c in sorted(want - have)]
    for kind, chip, code in found:
        if kind == ELF: # PTX is packed
            bad += [f"sm_{chip} lacks {k}" for k in kernels if k.encode() + b"\0" not in code]
    spills = [int(s) for s in re.findall(r"(\d+) bytes spill", said)]
    registers = re.findall(r"Used (\d+) registers", said)
    if max(spills, default=0) > SPILLED:
        bad.append(f"the assembler spilled {max(spills)} bytes, more than {SPILLED}")
    if len(registers) != 2 * len(kernels):
        bad.append(f"the log has {len(registers)} functions and not {2 * len(kernels)}")
    print("; ".join(bad) or f"{', '.join(kernels)}: sm_80, sm_90, PTX; registers {', '.join(registers)}; "
                            f"at most {max(spills)} bytes spilled")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
