"""Batches for a learner, drawn when asked or ahead by a thread: the same ones in the same order.

They have a generator of their own, so that what else draws during a step does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from gsf.data.dataset import Batch

Drawn = Mapping[str, Mapping[str, Tensor]]  # what each part's own `draw` returned, by its name
AHEAD_OF_A_GPU = 2  # one being copied, one being drawn


@dataclass(frozen=True)
class Fed:
    batch: Batch
    drawn: Drawn
    rng: Mapping[str, Any]  # state of the generator after them

    def map(self, move: Callable[[Tensor], Tensor]) -> Fed:
        drawn = {
            part: {name: move(x) for name, x in tensors.items()}
            for part, tensors in self.drawn.items()
        }
        return Fed(self.batch.map(move), drawn, self.rng)


class Feed:
    """`next(feed)` is the next batch; `ahead` of them are drawn by a thread while one is learnt."""

    def __init__(
        self,
        draw: Callable[[np.random.Generator], tuple[Batch, Drawn]],
        rng: np.random.Generator,
        ahead: int = 0,
        pin: bool = False,
    ) -> None:
        """`pin`: into memory that a GPU copies from without being waited for."""
        self._draw, self._rng, self._ahead, self._pin = draw, rng, ahead, pin
        self._pool = ThreadPoolExecutor(1, "gsf-feed") if ahead else None
        self._drawing: deque[Future[Fed]] = deque()
        self.state = rng.bit_generator.state  # after the last batch: whoever goes on begins here

    def _next(self) -> Fed:
        batch, drawn = self._draw(self._rng)
        fed = Fed(batch, drawn, self._rng.bit_generator.state)
        return fed.map(Tensor.pin_memory) if self._pin else fed

    def __next__(self) -> Fed:
        if self._pool is None:
            fed = self._next()
        else:
            while len(self._drawing) <= self._ahead:
                self._drawing.append(self._pool.submit(self._next))
            fed = self._drawing.popleft().result()
        self.state = fed.rng
        return fed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
