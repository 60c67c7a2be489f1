"""A sweep on a Ray cluster whose machines share no disk: connect, hand out units, settle outcomes.

The only module that imports Ray. The driver runs on a machine of the cluster; a store beside it
takes the files. Work is handed out again if its process or its machine is lost, with a new number.
"""

import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from rich.table import Table

from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.interrupts import stoppable
from gsf.core.logs import console
from gsf.core.version import __version__
from gsf.sweep import node
from gsf.sweep.jobs import Job, References
from gsf.sweep.live import Board
from gsf.sweep.options import RunConfig
from gsf.sweep.storage import Storage
from gsf.sweep.store import Store, sweep_id
from gsf.sweep.units import Unit, Units

PATIENCE = 60  # seconds for a machine to say what it has


class Cluster:
    """A connection, the store, and the units of work that are handed out."""

    def __init__(self, config: RunConfig, units: Units) -> None:
        self._config, self._units, self._ray = config, units, _import_ray()
        self._references: list[Unit] = []
        self.failures: dict[str, str] = {}  # of units that are no jobs
        self._at_a_time, self._share = _share(self._ray, config)
        self._sweep = sweep_id(config.out)

    def open_store(self) -> None:
        """On the driver's own machine, whose disk has --out."""
        ray = self._ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        kept = ray.remote(Store).options(num_cpus=0, scheduling_strategy=here)
        inputs = {name: path.resolve() for name, path in self._units.inputs.items()}
        self._store = kept.remote(self._config.out.resolve(), inputs, self._config.storage)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._ray.get(getattr(self._store, method).remote(*arguments))
        except self._ray.exceptions.RayActorError as error:
            raise UserError(
                f"the process that writes {self._config.out} is gone ({_short(error)}); "
                "the same command goes on."
            ) from None

    def prepare(self, references: Sequence[References]) -> None:
        self._references = [self._units.of_references(x) for x in references]
        self.open_store()

    def run(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Runs all jobs, and whatever they need; returns the reasons of those that failed."""
        units, names = self._units.of_jobs(jobs), {}
        for job in jobs:
            names[str(job.out.relative_to(self._config.out))] = job
        reasons = self.drive([*self._references, *units])
        self._references = []
        self.failures |= {unit: why for unit, why in reasons.items() if unit not in names}
        return {job: reasons[name] for name, job in names.items() if name in reasons}

    def drive(self, units: Sequence[Unit]) -> dict[str, str]:
        """Hands out all units that are not done, until none is left; the reasons of failures."""
        ray = self._ray
        done = self._ask("done", {unit.name: unit.key for unit in units})
        sweep = Handed(units, self._config.retries, done)
        running: dict[Any, Unit] = {}

        def stop_all() -> None:
            for answer in running:
                ray.cancel(answer)  # which lets it save

        left = len(sweep.waiting)
        with (
            stoppable(stop_all) as stop,
            Board(left, min(left, self._at_a_time)) as board,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),  # pages that Ray prints when a machine is lost
        ):
            while running or (sweep.waiting and not stop.asked):
                while not stop.asked and (unit := sweep.take()) is not None:
                    running[self._hand_out(unit)] = unit
                ready, _ = ray.wait(list(running), timeout=1.0) if running else ([], [])
                if ready:  # all of them
                    ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                told = self._ask("progress", [unit.name for unit in running.values()])
                for name, (machine, beat, _) in told.items():
                    board.show(str(sweep.units[name]), machine, beat)
                for answer in ready:
                    unit = running.pop(answer)
                    outcome = self._outcome(answer)
                    if outcome.reason is None:
                        self._ask("finish", unit.name, unit.key)
                    sweep.settle(unit, outcome, told[unit.name][2] if unit.name in told else 0)
                    if unit.name in sweep.done or unit.name in sweep.reasons:
                        board.end(str(unit), outcome.reason)
                    else:
                        board.back(str(unit), outcome.reason or "")
            stop.kept = f"{len(sweep.done)} of {len(units)} are done"
        return sweep.reasons

    def _hand_out(self, unit: Unit) -> Any:
        attempt = self._ask("begin", unit.name, (*unit.writes, unit.log))
        threads = max(1, int(self._config.cpus))
        order = node.Order(
            unit, attempt, self._sweep, self._units.code, threads, self._config.cache_gb
        )
        return (
            self._ray.remote(_work).options(max_retries=0, **self._share).remote(order, self._store)
        )

    def _outcome(self, answer: Any) -> node.Outcome:
        try:
            outcome: node.Outcome = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:  # its process or its machine is gone
            return node.Outcome(_short(error), own=False)
        return outcome


class Handed:
    """Which units wait, are done or have failed, and what is to become of each that ended."""

    def __init__(self, units: Sequence[Unit], retries: int, done: Sequence[str] = ()) -> None:
        self.units = {unit.name: unit for unit in units}
        self.waiting = [unit for unit in units if unit.name not in done]
        self.done, self.reasons = set(done), dict[str, str]()
        self._retries = retries
        self._lost: dict[str, int] = {}  # attempts in a row that saved nothing
        self._saved: dict[str, int] = {}

    def take(self) -> Unit | None:
        """The next whose needs are there; those whose needs failed fail with them."""
        for unit in list(self.waiting):
            if unit.needs in self.reasons:
                self.waiting.remove(unit)
                self.reasons[unit.name] = f"{unit.needs} failed: {self.reasons[unit.needs]}"
            elif unit.needs is None or unit.needs in self.done:
                self.waiting.remove(unit)
                return unit
        return None

    def settle(self, unit: Unit, outcome: node.Outcome, saved: int) -> None:
        name = unit.name
        if outcome.reason is None:
            self.done.add(name)
        elif outcome.own:
            self.reasons[name] = outcome.reason
        else:
            went_on = saved > self._saved.get(name, 0)  # a machine taken away is no fault of a run
            self._lost[name] = 1 if went_on else self._lost.get(name, 0) + 1
            self._saved[name] = max(saved, self._saved.get(name, 0))
            if self._lost[name] > self._retries:
                self.reasons[name] = (
                    f"lost {self._lost[name]} times without going on, at last: {outcome.reason}"
                )
            else:
                self.waiting.insert(0, unit)


def _work(order: node.Order, store: Any) -> node.Outcome:
    """On a node, in a process of Ray's."""

    def ask(method: str, *arguments: Any) -> Any:
        # While a task waits in ray.get, Ray gives its CPU to another.
        return getattr(store, method).remote(*arguments).future().result()

    return node.work(order, ask)


def _facts() -> tuple[str, str]:
    return socket.gethostname(), __version__


@contextlib.contextmanager
def connected(config: RunConfig, units: Units) -> Iterator[Cluster]:
    """Connects first: address, token, versions and what fits are known before any work."""
    if config.storage:
        Storage(config.storage)
    with locked(config.out / ".cluster"):
        ray = _import_ray()
        _connect(ray, config.cluster or "auto")
        try:
            cluster = Cluster(config, units)
            yield cluster
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "4")  # seconds to be told of a wrong token
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UserError("--cluster needs Ray: pip install 'gsf-rl[cluster]'.") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    if "://" in address:
        raise UserError(
            f"--cluster {address}: gsf has to run on a machine of the cluster, whose disk takes "
            "the results, and not as a client. Join it with `ray start --address=HOST:6379 "
            "--num-cpus=0`, then give --cluster HOST:6379."
        )
    host, _, port = address.rpartition(":")
    if address != "auto":
        if not host or not port.isdigit():
            raise UserError(f"--cluster {address} is not HOST:PORT (or auto), as `ray start` says.")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise UserError(
                f"--cluster {address}: nothing answers there ({error}); `ray start --head` says "
                "the address."
            ) from None
    console.print(f"connecting to the Ray cluster at {address}", highlight=False)
    with tempfile.TemporaryFile("w+") as complaints:
        try:
            # Ray's workers import from the folder that is the current one now.
            with _errors_into(complaints), contextlib.chdir(sys.prefix):
                waiting = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # as here (core/cores.py)
                same = {"env_vars": {x: os.environ[x] for x in waiting if x in os.environ}}
                quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
                ray.init(address=address, runtime_env=same, **quiet)
        except Exception as error:  # of a dozen types
            complaints.seek(0)
            why = _explained(error, complaints.read())
            raise UserError(f"--cluster {address}: {why}") from None


@contextlib.contextmanager
def _errors_into(file: IO[str]) -> Iterator[None]:
    """Ray's C++ part writes why it cannot connect to where errors go, and nowhere else."""
    before = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _explained(error: Exception, complaints: str) -> str:
    if "AuthToken" in complaints or "auth" in str(error).lower():
        return (
            "it has a token, and this machine has none or another; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on its other machines."
        )
    if "ersion mismatch" in str(error):
        return f"its Ray or Python is of another version: {' '.join(str(error).split())}"
    if isinstance(error, ConnectionError):
        return f"no Ray cluster answers there, or this machine has not joined it ({_short(error)})."
    return _short(error)


def _short(error: Exception) -> str:
    """One line: the first, or of an error on another machine, whose traceback it is, the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    is_traceback = type(error).__name__.startswith("RayTaskError")
    return lines[-1] if is_traceback else f"{type(error).__name__}: {lines[0].partition('. ')[0]}"


def _share(ray: Any, config: RunConfig) -> tuple[int, dict[str, float]]:
    """How many runs fit at a time, and what each asks for; shows what the machines have."""
    machines = [x for x in ray.nodes() if x["Alive"]]
    has_gpus = any(x["Resources"].get("GPU") for x in machines)
    gpus = config.gpus if config.gpus is not None else (1.0 if has_gpus else 0.0)
    table = Table("machine", "CPUs", "GPUs", "memory", "runs at a time")
    fitting: dict[str, int] = {}
    for machine in machines:
        have = machine["Resources"]
        n = int(have.get("CPU", 0) / config.cpus) if config.cpus else 10_000
        n = min(n, int(have.get("GPU", 0) / gpus)) if gpus else n
        fitting[machine["NodeID"]] = n
        name = machine["NodeManagerHostname"]
        cells = f"{have.get('CPU', 0):g}", f"{have.get('GPU', 0):g}"
        table.add_row(name, *cells, f"{have.get('memory', 0) / 1e9:.0f} GB", str(n))
    console.print(table)
    asked = f"{config.cpus:g} CPUs and {gpus:g} GPUs"
    if not any(fitting.values()):
        raise UserError(f"no machine of the cluster has {asked}, which a run asks for.")
    at_a_time = sum(fitting[x] for x in _check_versions(ray, [x for x, n in fitting.items() if n]))
    if not at_a_time:
        raise UserError(f"every machine of the cluster with {asked} was lost; add one.")
    console.print(f"{at_a_time} runs at a time, each with {asked}.")
    return at_a_time, {"num_cpus": config.cpus, "num_gpus": gpus}


def _check_versions(ray: Any, machines: Sequence[str]) -> list[str]:
    """Those that are still there. One that was lost just now may be on Ray's list for a while."""
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    remote = ray.remote(_facts).options
    answers = {
        remote(num_cpus=0, scheduling_strategy=at(machine, soft=False)).remote(): machine
        for machine in machines
    }
    _, late = ray.wait(list(answers), num_returns=len(answers), timeout=PATIENCE)
    if late:
        n = f"{len(late)} of {len(answers)}"
        raise UserError(f"{n} machines of the cluster did not answer in {PATIENCE} s.")
    lost = ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError
    there = []
    for answer, machine in answers.items():
        try:
            host, version = ray.get(answer)
        except lost as error:
            console.print(f"a machine is gone, and left out ({_short(error)}).", highlight=False)
            continue
        except ray.exceptions.RayError as error:
            raise UserError(
                f"a machine of the cluster cannot run gsf {__version__}; install the same version "
                f"on all of them. ({_short(error)})"
            ) from None
        if version != __version__:
            raise UserError(
                f"{host} has gsf {version}, this machine {__version__}; install the same version "
                "on all of them."
            )
        there.append(machine)
    return there
