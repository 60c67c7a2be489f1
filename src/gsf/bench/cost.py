"""What a preset costs: operations are counted, hours and money follow from what is assumed.

Counted on the real networks: passes of PPO, GVFs, every method and evaluation. Assumed, and
options: a GPU's peak, the share of it that is reached, its price, Procgen's speed beside it.
"""

from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from gsf.behaviour.options import PUBLISHED, CollectConfig
from gsf.behaviour.ppo import ActorCritic
from gsf.bench.measure import GAME, random_play
from gsf.bench.options import BenchCostConfig as BenchCostConfig
from gsf.bench.train import count, training_step
from gsf.core.files import write_atomic
from gsf.core.presets import preset_values
from gsf.learn.learner import AgentConfig
from gsf.nets.encoders import Encoder
from gsf.suites import facts_of
from gsf.sweep.options import RunConfig

COUNTED = 32  # transitions per pass that is counted
EPISODE = 300  # frames of an episode in evaluation, about the mean over games


def bench_cost(config: BenchCostConfig) -> dict[str, float]:
    """Hours of every stage on one GPU."""
    with random_play(20_480) as home:
        stages = _stages(config, home)
    hours = {name: config.hours(flops, frames) for name, (flops, frames) in stages.items()}
    _show(config, stages, hours)
    return hours


def _stages(config: BenchCostConfig, home: Path) -> dict[str, tuple[float, float]]:
    """stage -> (operations, frames of Procgen) of all its runs."""
    run = RunConfig(preset=config.size, methods=tuple(config.methods))
    compared = run.find_methods()
    cumulants = {x.method.cumulant for x in compared if x.method.cumulant}
    on_gpu = {**PUBLISHED, **preset_values("collect", config.size)}
    collected = CollectConfig(game=GAME, **on_gpu)
    fitted = run.stage("fit", dataset=Path(), out=Path())
    played = run.stage("evaluate", agent="")
    transitions = collected.transitions
    obs_shape = facts_of(GAME).obs_shape
    policy = ActorCritic(collected.schedule.encoder, obs_shape, len(collected.action_ids))
    ppo = pass_flops(policy, obs_shape)
    gvf = pass_flops(Encoder(obs_shape, fitted.encoder), obs_shape)
    stages: dict[str, tuple[float, float]] = {}
    learnt = ppo["forward"] + collected.schedule.epochs * ppo["both"]
    stages["collect"] = (
        config.games * (collected.frames * learnt + transitions * ppo["forward"]),
        config.games * (collected.frames + transitions),
    )
    stages["materialise"] = (0.0, config.games * transitions)
    if fitted.estimator == "td":
        n = config.games * config.seeds * len(cumulants) * fitted.grad_steps * fitted.batch
        stages["fit"] = (n * (gvf["both"] + gvf["forward"]), 0.0)
    for variant in compared:
        trained = run.of(variant).stage("train", variant, dataset=home / "dataset", out=home)
        n = config.games * config.seeds * trained.grad_steps * trained.batch
        stages[f"train {variant.name}"] = (n * _method_flops(trained, home), 0.0)
    levels = played.n_seen + played.n_validation + played.n_unseen
    episodes = config.games * config.seeds * len(compared) * levels * len(played.modes)
    encoder = pass_flops(Encoder(obs_shape, trained.encoder), obs_shape)
    stages["evaluate"] = (episodes * EPISODE * encoder["forward"], episodes * EPISODE)
    return stages


def pass_flops(net: nn.Module, obs_shape: tuple[int, ...]) -> dict[str, float]:
    """Operations per image of a forward pass, and of one with its backward pass."""
    obs = torch.zeros((COUNTED, *obs_shape), dtype=torch.uint8)

    def both() -> None:
        out = net(obs)
        out = out[0] if isinstance(out, tuple) else out
        torch.autograd.backward(out.sum())

    with torch.no_grad():
        forward = count(lambda: net(obs))
    return {"forward": forward / COUNTED, "both": count(both) / COUNTED}


def _method_flops(config: AgentConfig, home: Path) -> float:
    """Per transition of one training step.

    It is counted in a small batch. Only for pse that matters: it encodes further images, 256 in a
    batch of 1,024 but as many as transitions here, so its cost comes out about a third too high.
    """
    return count(training_step(home, config, COUNTED)) / COUNTED


def _show(
    config: BenchCostConfig, stages: dict[str, tuple[float, float]], hours: dict[str, float]
) -> None:
    frame = pd.DataFrame({"exaFLOP": {name: x / 1e18 for name, (x, _) in stages.items()}})
    for n in config.gpus:
        frame[f"hours on {n}"] = pd.Series(hours) / n
    frame["dollars"] = pd.Series(hours) * config.dollars
    frame.loc["all"] = frame.sum()
    table = Table(
        title=f"{config.size}: {config.games} games, {config.seeds} seeds; {config.tflops:g} "
        f"TFLOP/s at {config.utilisation:.0%}, {config.dollars:g} dollars an hour (assumed)"
    )
    for column in ("stage", *frame):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for name, numbers in frame.iterrows():
        table.add_row(str(name), *(f"{x:,.1f}" for x in numbers))
    Console().print(table)
    if config.out is not None:
        text = frame.to_csv(index_label="stage", float_format="%.2f", lineterminator="\n")
        write_atomic(config.out, text)
