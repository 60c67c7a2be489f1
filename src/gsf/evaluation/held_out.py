"""Stage: agent + logged data of other contexts -> how well it would do there, without playing.

A row per quantity and context in held_out.csv (held_out_rows.py says what they are), with intervals
over contexts and their episodes. judging.py makes the numbers of one agent; here is what is asked
of the data first, and what is written.
"""

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import digest, locked
from gsf.core.logs import console
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.evaluation.asked import find_file, find_steps
from gsf.evaluation.code_of_rows import check_code, code_of_encoder, note_code
from gsf.evaluation.held_out_rows import (
    IDENTITY,
    QUANTITIES,
    check_held_out,
    overall,
    read_held_out,
    write_held_out,
)
from gsf.evaluation.judging import judge
from gsf.evaluation.logging_policy import logged_probabilities
from gsf.evaluation.options import EvaluateConfig
from gsf.evaluation.players import is_run, weights
from gsf.learn.agent import load_agent
from gsf.nets.acting import explain
from gsf.nets.runtime import pick_device

HOW = ("gsf.evaluation.judging", "gsf.learn.agent")  # what decides the numbers


def judge_held_out(config: EvaluateConfig) -> pd.DataFrame:
    """All rows that were asked for, made now or before."""
    assert config.held_out is not None
    if not is_run(config.agent):
        raise UserError(f"--held-out judges a run directory; {config.agent} is none.")
    run, out = Path(config.agent), find_file(config, "held_out.csv")
    if out.suffix != ".csv":
        raise UserError(f"--held-out writes .csv files, not {out}.")
    manifest, dataset = read_manifest(run, "run", whole=False), Dataset.open(config.held_out)
    check_held_out(str(run), manifest, dataset.path, dataset.manifest)
    mu = logged_probabilities(dataset, config.logged_by, config.device)
    encoder = code_of_encoder(manifest["config"], manifest["inputs"].get("encoder"))
    names = {"game": manifest["game"], "method": manifest["method"], "seed": manifest["seed"]}
    steps = set()
    with locked(out.parent, f".{out.name}.lock"):
        rows = read_held_out(out)
        for step in find_steps(config):
            agent = load_agent(run, step, pick_device(config.device))
            mine = {**names, "step": agent.step, "data": dataset.digest}
            how = config.fqe, "none" if mu is None else digest(mu.tobytes())
            identity = digest(*weights(agent), *map(str, how))
            code = {identity: decided_by(*HOW, agent.base.__class__, encoder)}
            there = rows[(rows[list(mine)] == list(mine.values())).all(axis=1)]
            if set(there[IDENTITY]) - {identity}:
                raise UserError(
                    f"{out} has other rows of {manifest['method']} at step {agent.step} on this "
                    "data: another agent, --fqe or --logged-by; remove it or choose another "
                    "--out."
                )
            if len(there):
                check_code(out, code, config.accept_code_change)
                console.print(f"{out} has the rows of step {agent.step:,}.", soft_wrap=True)
            else:
                gamma = manifest["config"]["gamma"]
                there = judge(agent, dataset, gamma, config.fqe, mu)
                there = there.assign(**mine, **{IDENTITY: identity})
                note_code(out, code)
                rows = write_held_out(out, pd.concat([rows, there]) if len(rows) else there)
            steps.add(agent.step)
    asked = (rows["data"] == dataset.digest) & rows["step"].isin(steps)
    found = rows[asked].reset_index(drop=True)
    _print_summary(found, out)
    return found


def _print_summary(rows: pd.DataFrame, out: Path) -> None:
    first = rows.iloc[0]
    about = f"{first['n_contexts']} contexts held out, {first['n_episodes']:,} episodes"
    who = f"{first['game']}, {first['method']}, seed {first['seed']}: {about}\n{out}"
    table = Table(title=who, caption=explain(rows["mode"]))
    for name in ("step", "quantity", "mode", "value", "95 %"):
        table.add_column(name, justify="right" if name in ("step", "value") else "left")
    for row in overall(rows).to_dict("records"):
        interval = "" if row["low"] != row["low"] else f"{row['low']:.3f} to {row['high']:.3f}"
        value = "n/a" if row["value"] != row["value"] else f"{row['value']:.3f}"
        title = QUANTITIES[row["quantity"]].title
        table.add_row(f"{row['step']:,}", title, row["mode"], value, interval)
    Console().print(table)
    console.print("What each number is, and how far to trust it: docs/own-data.md", highlight=False)
