"""How far held-out numbers can be trusted: python examples/trust.py OUT RUN...

Each RUN has been played (gsf evaluate RUN --splits unseen --all) and judged without play (gsf
evaluate RUN --held-out DATASET --all). Every checkpoint is an agent. Writes OUT/agents.csv,
OUT/trust.csv (Spearman's rank correlation of each number with the true return) and OUT/trust.png.
"""

import sys
from pathlib import Path

import pandas as pd
from scipy.stats import spearmanr

from gsf.core.drawing import new_figure, save, styled
from gsf.evaluation.held_out_rows import ANY, JUDGED, overall, read_held_out
from gsf.learn.legend import colour, marker

SHOWN = ("agreement", "nll", "ece", "fqe", "wis")


def agents(runs):
    """A row per run and step: true returns by mode, and every number by quantity and mode."""
    parts = []
    for run in runs:
        rows = pd.read_csv(run / "returns.csv")
        rows = rows[rows["split"] == "unseen"]
        rows["mode"] = (
            rows["mode"].replace("sampled", "sampled-1")
            if "temperature" not in rows
            else rows["mode"]
        )
        played = rows[rows["mode"].isin(JUDGED)].pivot_table("return", "step", "mode")
        held = overall(read_held_out(run / "held_out.csv"))
        judged = held.assign(name=held["quantity"] + " " + held["mode"]).pivot_table(
            "value", "step", "name"
        )
        found = played.rename(columns=lambda mode: f"true {mode}").join(judged).reset_index()
        parts.append(found.assign(run=run.name, method=held["method"].iloc[0]))
    return pd.concat(parts, ignore_index=True)


def trust(found):
    """Rank correlation of each number with the true return of the same way to act."""
    rows = []
    for quantity in SHOWN:
        for mode in JUDGED:
            name = next(
                (n for n in (f"{quantity} {mode}", f"{quantity} {ANY}") if n in found), None
            )
            known = found.dropna(subset=[name, f"true {mode}"]) if name else found.iloc[:0]
            if len(known) > 2:
                rho, p = spearmanr(known[name], known[f"true {mode}"])
                rows.append(
                    {
                        "number": name,
                        "play": mode,
                        "rank_correlation": rho,
                        "p": p,
                        "agents": len(known),
                    }
                )
    return pd.DataFrame(rows)


@styled
def draw(found, table):
    figure = new_figure(4.2, note="each marker is an agent: a checkpoint of a run")
    axes = figure.subplots(len(JUDGED), len(SHOWN), squeeze=False)
    for row, mode in zip(axes, JUDGED, strict=True):
        for ax, quantity in zip(row, SHOWN, strict=True):
            mine = table[(table["play"] == mode) & table["number"].str.startswith(f"{quantity} ")]
            ax.set_visible(len(mine) > 0)
            for fact in mine.to_dict("records"):
                for method, part in found.groupby("method"):
                    style = {"color": colour(method), "marker": marker(method), "label": method}
                    ax.scatter(part[fact["number"]], part[f"true {mode}"], s=14, **style)
                ax.set_title(f"{quantity}: {fact['rank_correlation']:+.2f}")
        row[0].set_ylabel(f"true return, {mode}")
    axes[0][0].legend(fontsize=6)
    return figure


def main(out, *runs):
    found = agents([Path(run) for run in runs])
    table = trust(found)
    Path(out).mkdir(parents=True, exist_ok=True)
    found.round(4).to_csv(Path(out) / "agents.csv", index=False)
    table.round(3).to_csv(Path(out) / "trust.csv", index=False)
    save(draw(found, table), Path(out) / "trust")
    print(table.round(2).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
