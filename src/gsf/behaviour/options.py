"""What `gsf collect` may be told; read without torch, so that help is fast."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.options import (
    BatchSize,
    CodedOptions,
    Count,
    Device,
    Extendable,
    Group,
    Incidental,
    Input,
    Options,
    PrecisionOrAuto,
    Seed,
    Share,
    StepSize,
    Weight,
    above,
    between,
)
from gsf.core.schema import TEXT
from gsf.core.stage import Kind
from gsf.data.recording import MOST_LEVELS
from gsf.suites import RestorableEnv, facts_of, find_game, make_env, name_game

POLICY, RECORDING = (Kind(name, begun=({"game": TEXT},)) for name in ("policy", "recording"))
PUBLISHED: dict[str, Any] = {
    "n_envs": 64,
    "encoder": "impala",
    "n_steps": 256,
    "minibatches": 8,
    "epochs": 3,
    "view": "game",
}
# Deviation: of what was tried on one core (docs/notebook.md) this learns most in minutes.
ON_CPU = PUBLISHED | {"encoder": "strided", "n_steps": 128, "minibatches": 16, "view": "plain"}
HOLD = {"game": 1, "plain": 2}
PLANNING_ENVS = 16  # of few transitions each then has whole episodes


class Schedule(NamedTuple):
    """What a machine decides where the user does not."""

    n_envs: int
    encoder: str
    n_steps: int
    minibatches: int
    epochs: int
    view: str
    hold: int


def _by_machine() -> dict[str, Any]:
    import torch  # only here: the options load without it

    return PUBLISHED if torch.cuda.is_available() else ON_CPU


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Options):
    """How PPO learns: by default as published, without a GPU what learns most in minutes."""

    encoder: Annotated[str | None, Group.PPO] = None
    """Network: impala, impala_small, nature, strided, or your own as file.py:name
    (docs/extending.md). Default: impala, without a GPU strided."""
    n_envs: Annotated[int, between(1, 4096)] | None = None
    """Games played at once, in training and in recording. Default: 64, planning 16."""
    n_steps: Annotated[int, between(1, 65_536)] | None = None
    """Steps of each game between two updates. Default: 256, without a GPU 128."""
    minibatches: BatchSize | None = None
    """Parts that the steps of an update are divided into. Default: 8, without a GPU 16."""
    epochs: Annotated[int, between(1, 1000)] | None = None
    """Passes over the steps of an update. Default: 3."""
    view: Literal["game", "plain"] | None = None
    """What a policy that is trained here sees, now and whenever it plays: the images of the game,
    or the same states drawn without backgrounds and textures, of which it learns faster. What is
    recorded are the game's images either way. Default: game; without a GPU plain, if the suite can
    draw so."""
    hold: Annotated[int, between(1, 64)] | None = None
    """Steps that every action is held for in training, where they count as one step of learning.
    The policy that comes of it chooses at every step. Default: 1, with a plain view 2."""
    gamma: Share = 0.999
    """Discount, also of the return whose std scales the rewards."""
    lam: Share = 0.95
    """GAE's lambda."""
    lr: StepSize = 5e-4
    """Adam's step size."""
    adam_eps: Annotated[float, above(0, 1)] = 1e-5
    """Adam's epsilon."""
    clip: Annotated[float, above(0, 10)] = 0.2
    """Range of the probability ratio around 1, and of a value around its old one."""
    value_weight: Weight = 0.5
    """Weight of the value loss."""
    entropy_weight: Weight = 0.01
    """Weight of the entropy bonus."""
    grad_norm: Annotated[float, above(0, 10**6)] = 0.5
    """Gradients are clipped to this norm."""
    reward_clip: Annotated[float, above(0, 10**6)] = 10.0
    """Scaled rewards are clipped to +- this."""
    chunk: Annotated[BatchSize | None, Group.MACHINE] = None
    """Frames per forward and backward pass; gradients add up over a minibatch, so that this sets
    memory and speed, not the result (but for rounding). Default: 256 on a CPU, else all."""
    precision: PrecisionOrAuto = "float32"
    """bf16: convolutions compute in bfloat16, faster where the processor has it. auto: a trial of
    two seconds decides, and its choice is kept. No default before returns of both were compared."""
    device: Incidental[Device] = "auto"
    """Where the network runs; auto: CUDA if there is one. mps: a GPU of Apple's, if asked for."""

    def __post_init__(self) -> None:
        if None in self.schedule:
            for name, value in _by_machine().items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)
        if self.hold is None:
            object.__setattr__(self, "hold", HOLD.get(self.schedule.view))
        super().__post_init__()
        if self.schedule.minibatches > self.steps_per_update:
            raise UserError(
                f"--minibatches {self.minibatches} is more than the {self.steps_per_update} "
                "steps of an update; choose fewer."
            )

    @property
    def schedule(self) -> Schedule:
        return Schedule(*(getattr(self, name) for name in Schedule._fields))

    @property
    def steps_per_update(self) -> int:
        """Of learning: as many actions are chosen."""
        return self.schedule.n_envs * self.schedule.n_steps

    @property
    def frames_per_update(self) -> int:
        return self.steps_per_update * self.schedule.hold


@dataclass(frozen=True, kw_only=True)
class PlanConfig(Options):
    """How futures are looked for by a player that plans."""

    width: Annotated[int, between(2, 4096), Group.PLANNING] = 128
    """Planning: futures that are tried at once."""
    depth: Annotated[int, between(1, 65_536)] = 96
    """Planning: steps of a future."""
    commit: Annotated[int, between(1, 65_536)] = 24
    """Planning: steps of the best one that are played before it plans again; one that wins is
    played to its end."""
    chances: Annotated[int, between(1, 256)] = 1
    """Planning: with how many different random numbers to come each future is tried. With 1 the
    player knows what will happen; with more it does not, and goes by their mean. --width counts all
    of them."""
    smooth: Share = 0.1
    """Planning: how much a change of action at every step is worth avoiding, as a share of what it
    is worth to be still in the game. Play that changes less is easier to imitate."""


@dataclass(frozen=True, kw_only=True)
class CollectConfig(PPOConfig, PlanConfig, CodedOptions):
    """Train PPO on a game, or plan, and record its play."""

    player: Literal["ppo", "plan", "best", "random"] = "ppo"
    """Who plays: a policy, trained here by PPO or taken from --policy; one that plans in copies of
    the game, which can be restored (docs/data.md); the best there is, in a game that knows it
    (grids); or chance."""
    skill: Share = 0.9
    """--player best: the chance that an action is the best one, not a random one."""

    game: str | None = None
    """A game of an installed suite, such as Procgen's 16; with --env what to call yours (default:
    its file's name)."""
    env: Input[str | None] = None
    """A Gymnasium environment of yours instead, as file.py:make: make(level) gives that of a level,
    which is reset with seed=level. The file is run."""
    policy: Input[Path | None] = None
    """Record this policy (a file, the directory of another collect, the name of a shipped one,
    or weights of rllte's PPO) instead of training one. With --player plan it plays half of the
    futures that are tried."""
    start_from: Input[Path | None] = None
    """Train this policy further (a file, the directory of another collect, the name of a shipped
    one) instead of a new one. --frames counts those it has learnt from, too; Adam's averages and
    the scale of rewards, which a policy does not hold, begin anew."""
    out: Incidental[Path | None] = None
    """Directory of policy and recording. Default: runs/collect-<game>."""
    seed: Seed = 0
    """Of everything random: weights, order of levels, actions, minibatches."""
    frames: Annotated[Extendable[Count], Group.SIZE] = 25_000_000
    """Frames to train for, rounded up to whole updates. With more of them a trained policy is
    trained further, and recorded anew."""
    transitions: Count = 5_000_000
    """Transitions to record, rounded up to the same number in each env."""
    checkpoint_seconds: Incidental[Annotated[float, between(0, 10**6)]] = 60.0
    """Time between two checkpoints of training."""
    n_levels: Annotated[int, between(1, MOST_LEVELS), Group.LEVELS] = 200
    """Number of levels, in training and in recording."""
    start_level: Annotated[int, between(0, 2**31 - MOST_LEVELS)] = 0
    """First of them."""
    difficulty: str | None = None
    """How hard the levels are, where the suite has a choice. Default: its first (Procgen: easy)."""
    actions: Literal["distinct", "all"] = "distinct"
    """What the policy chooses among: the game's actions that differ in what follows, or all of
    them as published, of which many may do the same. A recording has the suite's own ids either
    way."""
    epsilon: Literal["decay", "literal"] = "decay"
    """Chance of a random action while recording: from 0.1 to 0, or the paper's 0.1 - 3.96e-9 t."""
    plain: Annotated[Incidental[bool], Group.OUTPUT] = False
    """With --env: record a dataset of pixels, OUT/dataset, as is done anyway of an environment that
    does not repeat itself. A recording is much smaller and can be replayed."""
    keep_weak: Incidental[bool] = False
    """Also keep, as OUT/weak.pt, the policy that first gets 30 % of the way from random play to the
    published one, by its last 100 episodes. `--policy OUT/weak.pt` records it (tier GAME-weak)."""
    wandb: Incidental[bool] = False
    """Also log to Weights & Biases (pip install 'gsf-rl[wandb]'): offline, unless WANDB_MODE says
    otherwise."""
    tensorboard: Incidental[bool] = True
    """Write TensorBoard files beside metrics.jsonl."""

    def __post_init__(self) -> None:
        if self.n_envs is None and self.player == "plan":
            object.__setattr__(self, "n_envs", PLANNING_ENVS)
        left = [name for name in ("view", "hold") if getattr(self, name) is None]
        super().__post_init__()
        if self.env is not None:
            from gsf.suites.gymnasium import name_env

            game = name_env(self.env, self.game, self.start_level)
            suite = find_game(game)[0]
        elif self.game is None:
            raise UserError("which game? Give --game, or your own as --env file.py:make.")
        elif self.plain:
            raise UserError("--plain is for --env; `gsf materialise` makes pixels of a recording.")
        else:
            suite, game = name_game(self.game)
        if suite.replays_with is None:
            raise UserError(
                f"{game} cannot be recorded: {suite.name} does not repeat itself exactly; import "
                "its data with `gsf data import`, or name an environment with --env."
            )
        object.__setattr__(self, "game", game)
        object.__setattr__(self, "difficulty", self.difficulty or suite.difficulties[0])
        if self.policy is not None and self.start_from is not None:
            raise UserError("--policy and --start-from exclude each other; choose one of them.")
        if self.player != "ppo" and self.start_from is not None:
            raise UserError(f"--start-from is for a policy, not for --player {self.player}.")
        if self.player in ("random", "best") and self.policy is not None:
            raise UserError(f"--player {self.player} needs no --policy; leave one of them out.")
        if self.player == "best" and suite.true_values is None:
            raise UserError(f"{suite.name} does not know the best play of {game}; grids do.")
        if self.keep_weak and facts_of(game).way(0) is None:
            raise UserError(f"--keep-weak: nobody has published how well {game} can be played.")
        if not suite.plain:
            if self.view == "plain" and "view" not in left:
                raise UserError(f"{suite.name} draws {game} in one way only; leave --view out.")
            for name in left:
                object.__setattr__(self, name, {"view": "game", "hold": HOLD["game"]}[name])
        if self.width < 2 * self.chances:
            raise UserError(
                f"--width {self.width} is less than two futures of --chances {self.chances} each; "
                "give more."
            )
        if self.player == "plan" and self.plain:
            raise UserError("--player plan makes a recording; leave --plain out.")

    @property
    def directory(self) -> Path:
        return self.out or Path("runs") / f"collect-{self.played}"

    @property
    def played(self) -> str:
        """The game, as its suite calls it."""
        assert self.game is not None
        return self.game

    @property
    def trains(self) -> bool:
        """Whether PPO learns here, or whoever plays is there already."""
        return self.player == "ppo" and self.policy is None

    @property
    def drawn(self) -> Mapping[str, Any]:
        """Options of the env in which PPO learns: how it is drawn."""
        return find_game(self.played)[0].drawn(self.schedule.view)

    @property
    def action_ids(self) -> NDArray[np.int64]:
        """The suite's ids of what the policy chooses among."""
        return facts_of(self.played).action_ids(self.actions)

    @property
    def n_transitions(self) -> int:
        """Of all envs, each with as many."""
        n_envs = self.schedule.n_envs
        return math.ceil(self.transitions / n_envs) * n_envs

    @property
    def levels(self) -> range:
        return range(self.start_level, self.start_level + self.n_levels)

    def make_env(
        self, rng: np.random.Generator, n_envs: int | None = None, **options: Any
    ) -> RestorableEnv:
        seed, n_envs = int(rng.integers(2**31 - 1)), n_envs or self.schedule.n_envs
        options |= {"difficulty": self.difficulty, "copy": False}
        env: RestorableEnv = make_env(self.played, self.levels, n_envs, seed, **options)
        return env
