"""Training steps of other projects, run from a checkout of theirs, to compare ours with.

Each runs in a process of its own, as its modules are called `utils` and the like. Its batch is a
tensor at hand: drawing one costs it nothing, while our step draws, crops and converts.
"""

import contextlib
import functools
import importlib.util
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gsf.bench.measure import seconds_of
from gsf.core.errors import UserError
from gsf.core.processes import starting

SHAPE, N_ACTIONS = (3, 64, 64), 15  # Procgen's


@dataclass(frozen=True)
class Peer:
    """`prepare(root, batch)` makes one step of CQL, as the project itself would do it."""

    marker: str  # a file by which its checkout is known
    folder: str  # where its imports start
    encoder: str  # ours that is nearest to its network
    prepare: Callable[[Path, int], Callable[[], Any]]
    needs: tuple[str, ...] = ()  # what it imports and gsf does not


def _gen_dgrl(root: Path, batch: int) -> Callable[[], Any]:
    """IMPALA's network, one critic, double DQN; Huber loss and CQL's term."""
    # The file alone: its package also imports libraries that can no longer be installed.
    found = importlib.util.spec_from_file_location("ddqn_cql", root / "offline/agents/ddqn_cql.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    # From configs/offline/final/cql.json and the defaults of offline/arguments.py.
    options = {"lr": 5e-4, "agent_model": "pporesnetbase", "hidden_size": 256, "gamma": 0.99}
    options |= {"target_update_freq": 1000, "tau": 0.005, "cql_alpha": 1.0}
    options |= {"eps_start": 1.0, "eps_end": 0.1, "eps_decay": 1000, "perform_polyak_update": True}
    agent = module.CQL(SimpleNamespace(shape=(64, 64, 3)), N_ACTIONS, **options)
    agent.train()
    obs, next_obs = torch.rand(2, batch, *SHAPE)
    action = torch.randint(N_ACTIONS, (batch, 1))
    reward, done = torch.rand(2, batch, 1)
    return lambda: agent.train_step(obs, action, reward, next_obs, done.round())


def _d3rlpy(root: Path, batch: int) -> Callable[[], Any]:
    """DQN's three convolutions, one critic, double DQN; Huber loss and CQL's term."""
    # Not a dependency of ours.
    from d3rlpy.algos import DiscreteCQLConfig  # type: ignore[import-not-found]
    from d3rlpy.torch_utility import TorchMiniBatch  # type: ignore[import-not-found]

    agent = DiscreteCQLConfig(batch_size=batch).create(device=False)
    agent.create_impl(SHAPE, N_ACTIONS)
    obs, next_obs = torch.rand(2, batch, *SHAPE)
    action = torch.randint(N_ACTIONS, (batch, 1))
    reward, done, ones = torch.rand(3, batch, 1)
    drawn = TorchMiniBatch(
        obs, action, reward, next_obs, action, reward, done.round(), ones.ceil(), "cpu:0"
    )
    steps = iter(range(1, 1 << 60))
    return lambda: agent.impl.update(drawn, next(steps))


PEERS = {
    "gen_dgrl": Peer("procgen/offline/agents/ddqn_cql.py", "procgen", "impala", _gen_dgrl),
    "d3rlpy": Peer(
        "d3rlpy/algos/qlearning/cql.py",
        "",
        "nature",
        _d3rlpy,
        ("click", "colorama", "dataclasses_json", "gym", "gymnasium", "h5py", "structlog", "tqdm"),
    ),
}


def find_peer(checkout: Path) -> str:
    for name, peer in PEERS.items():
        if (checkout / peer.marker).is_file():
            return name
    raise UserError(f"--against {checkout}: no checkout of {' or '.join(PEERS)} is there.")


def try_peer(checkout: Path) -> None:
    """Before anything is measured: one sentence if it cannot be run, with all that it lacks."""
    name = find_peer(checkout)
    if lacking := [x for x in PEERS[name].needs if importlib.util.find_spec(x) is None]:
        raise UserError(f"{name} in {checkout} needs {', '.join(lacking)}; install that first.")
    with peer_step(checkout, 2) as step:
        step()


@contextlib.contextmanager
def peer_step(checkout: Path, batch: int) -> Iterator[Callable[[], float]]:
    """Yields a function that does one step of the peer and returns its seconds."""
    name = find_peer(checkout)

    def ask() -> float:
        try:
            said = pool.submit(_seconds, name, checkout.resolve(), batch).result()
        except BrokenProcessPool:
            raise UserError(f"the step of {name} in {checkout} died.") from None
        if isinstance(said, str):
            raise UserError(f"{name} in {checkout} cannot be run: {said}.")
        return said

    with starting(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield ask


def _seconds(name: str, checkout: Path, batch: int) -> float | str:
    """In the process of the peer: the seconds of a step, or why it failed."""
    try:
        return seconds_of(_prepared(name, checkout, batch))
    except Exception as error:  # a dependency of theirs that is missing, another version
        return f"{type(error).__name__}: {error}"


@functools.cache
def _prepared(name: str, checkout: Path, batch: int) -> Callable[[], Any]:
    root = checkout / PEERS[name].folder
    sys.path.insert(0, str(root))
    return PEERS[name].prepare(root, batch)
