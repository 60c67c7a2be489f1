"""A sweep on a Ray cluster whose machines share no disk: connect, hand out units, settle outcomes.

The only module that imports Ray. The driver runs on a machine of the cluster; a store beside it
takes the files. A unit whose process or machine is lost is handed out again.
"""

import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any

from rich.table import Table

from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.interrupts import stoppable
from gsf.core.logs import console
from gsf.core.version import __version__
from gsf.sweep import node
from gsf.sweep.bucket import Bucket
from gsf.sweep.jobs import Job, Reference
from gsf.sweep.live import Board
from gsf.sweep.options import RunConfig
from gsf.sweep.store import Store
from gsf.sweep.units import Unit, Units

SECONDS = 0.5  # from one look at what has ended to the next
PATIENCE = 60  # seconds in which a machine must say its version


class Cluster:
    """Hands out units of work to machines; a store on the driver's takes their files."""

    def __init__(self, ray: Any, config: RunConfig, units: Units) -> None:
        self._ray, self._config, self._units = ray, config, units
        self._references: list[Unit] = []
        self.failures: dict[str, str] = {}  # of units that are no jobs
        self._at_a_time, self._share = _share(ray, config)

    def prepare(self, references: Sequence[Reference]) -> None:
        """Opens the store, on the driver's own machine, whose disk has --out."""
        self._references = [self._units.reference(x) for x in references]
        here = _on(self._ray, self._ray.get_runtime_context().get_node_id())
        kept = self._ray.remote(Store).options(**here)
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

    def run(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Runs all jobs, and whatever they need; returns the reasons of those that failed."""
        reasons = self.drive([*self._references, *self._units.runs(jobs)])
        self._references = []
        failed = {job: reasons.pop(name) for job in jobs if (name := self._name(job)) in reasons}
        self.failures |= reasons
        return failed

    def _name(self, job: Job) -> str:
        return self._units.name(job.out)

    def drive(self, units: Sequence[Unit]) -> dict[str, str]:
        """Hands out units until all are done or have failed; returns why those failed."""
        ray = self._ray
        done = self._ask("done", {unit.name: unit.key for unit in units})
        queue = Queue(units, done, self._config.retries)
        running: dict[Any, Unit] = {}

        def stop_all() -> None:
            for answer in running:
                ray.cancel(answer)  # which lets it save

        left = len(queue.waiting)
        with (
            stoppable(stop_all) as stop,
            Board(left, min(left, self._at_a_time)) as board,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),  # Ray prints pages when a machine is lost
        ):
            while running or (queue.waiting and not stop.asked):
                while not stop.asked and (unit := queue.take()):
                    running[self._hand_out(unit)] = unit
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=SECONDS)
                heard = self._ask("heard", [unit.name for unit in running.values()])
                for unit in running.values():
                    if at_work := heard.get(unit.name):
                        board.show(str(unit), at_work.machine, at_work.beat)
                for answer in ended:
                    unit = running.pop(answer)
                    outcome = self._outcome(answer)
                    if outcome.reason is None:
                        self._ask("finish", unit.name, unit.key)
                    saved = unit.name in heard and heard[unit.name].saved > 0
                    for name, reason in queue.settle(unit, outcome, saved).items():
                        board.end(str(queue.units[name]), reason)
                    if unit in queue.waiting:
                        board.back(str(unit), outcome.reason or "")
            stop.kept = f"{len(queue.done)} of {len(units)} are done"
        return queue.reasons

    def _hand_out(self, unit: Unit) -> Any:
        attempt, threads = self._ask("begin", unit.name), max(1, int(self._config.cpus))
        order = node.Order(unit, attempt, self._units.code, threads, self._config.cache_gb)
        work = self._ray.remote(_work).options(max_retries=0, **self._share)
        return work.remote(order, self._store)

    def _outcome(self, answer: Any) -> node.Outcome:
        try:
            outcome: node.Outcome = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:  # its process or its machine is gone
            return node.Outcome(_short(error), own=False)
        return outcome


class Queue:
    """Which units wait, are done or have failed; whether one that was lost is tried again."""

    def __init__(self, units: Sequence[Unit], done: Collection[str], retries: int) -> None:
        self.units = {unit.name: unit for unit in units}
        self.waiting = [unit for unit in units if unit.name not in done]
        self.done, self.reasons = set(done), dict[str, str]()
        self._retries = retries
        self._lost = Counter[str]()  # attempts in a row that saved nothing

    def take(self) -> Unit | None:
        """The next unit that can begin: whatever it needs is done."""
        ready = (unit for unit in self.waiting if unit.needs is None or unit.needs in self.done)
        if unit := next(ready, None):
            self.waiting.remove(unit)
        return unit

    def settle(self, unit: Unit, outcome: node.Outcome, saved: bool) -> dict[str, str | None]:
        """After an attempt: the units that are over, with the reason if they failed.

        One that was lost is not over; it waits again.
        """
        if outcome.reason is None:
            self.done.add(unit.name)
            return {unit.name: None}
        if outcome.own:
            return dict(self._fail(unit, outcome.reason))
        # A run that got further before its machine was taken away is not to blame.
        self._lost[unit.name] = 1 if saved else self._lost[unit.name] + 1
        n = self._lost[unit.name]
        if n > self._retries:
            why = f"lost {n} times without getting further, the last time: {outcome.reason}"
            return dict(self._fail(unit, why))
        self.waiting.insert(0, unit)
        return {}

    def _fail(self, unit: Unit, why: str) -> Iterator[tuple[str, str]]:
        """A unit has failed; units that need its output fail, too."""
        self.reasons[unit.name] = why
        yield unit.name, why
        for other in [x for x in self.waiting if x.needs == unit.name]:
            self.waiting.remove(other)
            yield from self._fail(other, f"{unit.name} failed: {why}")


def _work(order: node.Order, store: Any) -> node.Outcome:
    """What Ray runs on a node, in a process of its own."""

    def ask(method: str, *arguments: Any) -> Any:
        # While a task waits in ray.get, Ray gives its CPU to another.
        return getattr(store, method).remote(*arguments).future().result()

    return node.work(order, ask)


def _on(ray: Any, machine: str) -> dict[str, Any]:
    """Options of what is to run on this machine and no other."""
    only = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(machine, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": only}


def _facts() -> tuple[str, str]:
    return socket.gethostname(), __version__


@contextlib.contextmanager
def connected(config: RunConfig, units: Units) -> Iterator[Cluster]:
    """Connects, and checks address, token, versions and what fits before any work begins."""
    if config.storage:
        Bucket(config.storage)
    with locked(config.out / ".cluster"):
        ray = _connect(config.cluster or "auto")
        try:
            yield Cluster(ray, config, units)
        finally:
            ray.shutdown()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "4")  # seconds to learn of a wrong token
    try:
        import ray  # an optional extra
        import ray.util.scheduling_strategies
    except ImportError:
        raise UserError("--cluster needs Ray: pip install 'gsf-rl[cluster]'.") from None
    return ray


def _connect(address: str) -> Any:
    ray = _import_ray()
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
            # Ray's workers will import from the current folder: not from the user's.
            with _errors_into(complaints), contextlib.chdir(sys.prefix):
                waiting = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # as here (core/cores.py)
                same = {"env_vars": {x: os.environ[x] for x in waiting if x in os.environ}}
                quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
                ray.init(address=address, runtime_env=same, **quiet)
        except Exception as error:  # Ray raises a dozen types
            complaints.seek(0)
            why = _explained(error, complaints.read())
            raise UserError(f"--cluster {address}: {why}") from None
    return ray


@contextlib.contextmanager
def _errors_into(file: IO[str]) -> Iterator[None]:
    """Ray's C++ part writes to standard error why it cannot connect, and says it nowhere else."""
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
    """An error in one line: the first of its text. The text of an error that was raised on another
    machine is a traceback, whose last line says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    is_traceback = type(error).__name__.startswith("RayTaskError")
    return lines[-1] if is_traceback else f"{type(error).__name__}: {lines[0].partition('. ')[0]}"


def _share(ray: Any, config: RunConfig) -> tuple[int, dict[str, float]]:
    """How many runs fit at a time, and the CPUs and GPUs of each; prints what the machines have."""
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
    """The machines that are still there; all of them have this gsf.

    One that was lost just now may stay on Ray's list for a while.
    """
    facts = ray.remote(_facts)
    answers = {facts.options(**_on(ray, x)).remote(): x for x in machines}
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
