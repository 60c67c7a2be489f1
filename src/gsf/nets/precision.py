"""`--precision auto`: whether bfloat16 pays on this machine, by a short trial.

What it chose stands in the output's manifest like an option, so that whoever goes on does so with
the same and comes to the same bits.
"""

import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from gsf.core.logs import console
from gsf.core.options import Precision
from gsf.core.stage import MANIFEST, read_manifest
from gsf.nets import encoders
from gsf.nets.encoders import ConvTrunk, Shape
from gsf.nets.runtime import pick_device, seeded

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
SECONDS, LEAST_ROUNDS = 2.0, 3
PAYS = 1.1  # times as fast; less is noise, and float32 is the safer choice


def settled(config: Any, out: Path, kind: str, obs_shape: Shape, batch: int) -> Any:
    """A stage's options with one of the two in auto's place: as `out` was begun, else as pays."""
    if config.precision != "auto":
        return config
    if (out / MANIFEST).is_file():
        chosen = read_manifest(out, kind, whole=False)["options"]["precision"]
    else:
        ratio = gain(obs_shape, config.encoder, batch, config.device)
        chosen = "bf16" if ratio >= PAYS else "float32"
        console.print(f"--precision auto: {chosen} (bf16 is {ratio:.2f} times as fast here).")
    return dataclasses.replace(config, precision=chosen)


def gain(obs_shape: Shape, encoder: str, batch: int, device: str) -> float:
    """How many times as fast the encoder learns in bfloat16, both taking turns."""
    with seeded(np.random.default_rng(0)):
        trunk = ConvTrunk(obs_shape, encoders.find(encoder).value).to(pick_device(device))
        obs = torch.randint(0, 256, (batch, *obs_shape), dtype=torch.uint8)
    obs = obs.to(pick_device(device))
    seconds: dict[Precision, list[float]] = {precision: [] for precision in PRECISIONS}
    begun, rounds = time.monotonic(), 0
    while rounds < LEAST_ROUNDS or time.monotonic() - begun < SECONDS:
        for precision in PRECISIONS:
            start = time.perf_counter()
            trunk.bf16 = precision == "bf16"
            gradients = torch.autograd.grad(trunk(obs).square().mean(), list(trunk.parameters()))
            float(gradients[0].sum())  # a GPU answers when it is done
            seconds[precision].append(time.perf_counter() - start)
        rounds += 1
    medians = [statistics.median(seconds[precision][1:]) for precision in PRECISIONS]
    return medians[PRECISIONS.index("float32")] / medians[PRECISIONS.index("bf16")]
