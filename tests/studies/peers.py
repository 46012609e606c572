# SPDX-License-Identifier: Apache-2.0
"""What other designs would take by their bytes alone, over rails as fast as ours: no calls, no tensors one by one, no
registration of memory. So these are what such a design could reach, and not what any program does."""

GOODPUT = 0.97  # as agent/predict/params.h
HOST = 50e9  # bytes/s of a GPU to host memory, as there
RAIL = 50e9


def broadcast(line):
    """Rank 0: the trainer's workers gather the model at one, which broadcasts it, bucket by bucket, so that both go on at
    once. All of it comes into, and leaves, that one's rail; receivers pass it on."""
    return 1e3 * line["model_bytes"] / (RAIL * GOODPUT)


def single_source(line, trainers, copies):
    """Each engine takes all that it needs from trainers, which have copied their part to host memory first. They share
    the engines evenly at best; `copies`: of the model among them."""
    model, engines = line["model_bytes"], line["engines"]
    copy = model * copies / (trainers * HOST)
    send = engines * model / (trainers * RAIL * GOODPUT)
    return 1e3 * (copy + max(send, line["t_min_ms"] / 1e3 / GOODPUT))
