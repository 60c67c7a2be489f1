"""Takes finished players into the package and writes both tables of players anew.

    python docs/results/behaviour/ship.py --from FOLDER ninja plunder

FOLDER holds what belongs to a player, as README.md beside this file makes it: runs/GAME, val/GAME,
weak/GAME or runs/GAME+weak (left out unless it is 10 to 40 % of the way)
and eval/GAME.csv. Without games only the tables are written.
"""

import argparse
import csv
import gzip
import json
import shutil
from pathlib import Path

import numpy as np

from gsf.data.cards import mean_return, share_of_the_way
from gsf.data.recording import Recording
from gsf.data.tiers import SHIPPED, find_recording, list_shipped, tier_of
from gsf.suites import Game, known_facts

HERE = Path(__file__).parent
LATER, EARLIER = HERE / "policies-later.csv.gz", HERE / "policies.csv.gz"
DATA_PAGE = HERE.parents[1] / "data.md"
RECORDINGS = "| recording | tier |"
PLAYERS = "| game | random | weak |"
LEAST, MOST = 0.1, 0.4  # of the way from random to published play: a weak player


def ship(game: str, folder: Path) -> None:
    copies = {
        f"runs/{game}/{game}.gsfrec": f"{game}.gsfrec",
        f"runs/{game}/policy.pt": f"{game}.policy.pt",
        f"val/{game}/{game}.gsfrec": f"{game}-validation.gsfrec",
    }
    for weak in (f"weak/{game}/{game}.gsfrec", f"runs/{game}+weak/{game}.gsfrec"):
        if (folder / weak).exists() and LEAST < way(Recording.load(folder / weak)) < MOST:
            copies[weak] = f"{game}-weak.gsfrec"
    for source, name in copies.items():
        shutil.copyfile(folder / source, SHIPPED / name)
    write_curve(folder / f"runs/{game}/metrics.jsonl", HERE / f"{game}.csv")
    replace_rows(game, folder / f"eval/{game}.csv")


def way(recording: Recording) -> float:
    share = share_of_the_way(recording.game, mean_return(recording), recording.levels)
    return -np.inf if share is None else share


def write_curve(metrics: Path, out: Path) -> None:
    """A player that was trained on from a shipped one keeps what came before."""
    names = ["step", "ppo/return", "ppo/entropy", "ppo/seconds", "ppo/frames_per_second"]
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    rows = [{x: round(row[x], 4) if x in row else "" for x in names} for row in rows]
    before = read_rows(out) if out.exists() and rows[0]["step"] > 10**6 else []
    earlier = [row for row in before if int(row["step"]) < rows[0]["step"]]
    with out.open("w") as file:
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        table.writerows([*earlier, *rows])


def read_rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def replace_rows(game: str, played: Path) -> None:
    old = read_rows(LATER)
    new = read_rows(played)
    last = max(new, key=lambda row: int(row["step"]))["step"]
    rows = [row for row in old if row["game"] != game]
    rows += [row for row in new if row["step"] == last]
    rows.sort(key=lambda r: (r["game"], r["split"], r["mode"], int(r["level"])))
    with gzip.GzipFile(LATER, "wb", mtime=0) as packed:
        lines = [",".join(old[0])] + [",".join(row[x] for x in old[0]) for row in rows]
        packed.write(("\n".join(lines) + "\n").encode())


def recordings_table() -> list[str]:
    lines = [
        "| recording | tier | transitions, levels | return | of random play "
        "| of PPO, 25M frames (published) | way |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in list_shipped():
        game, tier, held_out = tier_of(path.stem)
        if held_out:
            continue
        recording, facts = Recording.load(path), known_facts(game)
        mean, levels = mean_return(recording), recording.levels
        share = share_of_the_way(recording.game, mean, levels)
        cells = [path.stem, tier, f"{len(recording):,} on levels {levels[0]}..{levels[-1]}"]
        cells += [f"{mean or 0:.1f}", *earned(facts), "-" if share is None else f"{share:z.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def earned(facts: Game | None) -> list[str]:
    """Returns of random and of published play; of grids the best is known instead."""
    if facts is None or facts.random is None or facts.published is None:
        return ["-", "1.0"]
    return [f"{facts.random:.1f}", f"{facts.published[0]:.1f}"]


def players_table() -> list[str]:
    lines = [
        "| game | random | weak | policy, seen: sampled, greedy | unseen: sampled, greedy "
        "| planned | published seen, unseen | way | frames | network, view | minutes |",
        "|---" * 11 + "|",
    ]
    played = returns_of(read_rows(EARLIER)) | returns_of(read_rows(LATER))
    return lines + [
        row for _, row in sorted((player_row(g, played) for g in recorded()), reverse=True)
    ]


def recorded() -> list[str]:
    return sorted(
        {tier_of(path.stem).game for path in list_shipped() if known_facts(tier_of(path.stem).game)}
        - {"grid5_looks"}
    )


def returns_of(
    rows: list[dict[str, str]],
) -> dict[tuple[str, int], dict[tuple[str, str], list[float]]]:
    """By game and frames, then by split and mode."""
    played: dict = {}
    for row in rows:
        agent = played.setdefault((row["game"], int(row["step"])), {})
        agent.setdefault((row["split"], row["mode"]), []).append(float(row["return"]))
    return played


def player_row(game: str, played: dict) -> tuple[float, str]:
    facts, recording = known_facts(game), Recording.load(find_recording(game))
    policy = recording.takes[0].policy
    frames, config = int(policy["frames"]), policy.get("config") or {}
    at = played.get((game, frames), {})

    def pair(split: str) -> str:
        found = (at.get((split, mode)) for mode in ("sampled", "greedy"))
        return ", ".join(f"{np.mean(x):.1f}" if x else "-" for x in found)

    def tier(name: str) -> str:
        path = SHIPPED / f"{game}-{name}.gsfrec"
        return f"{mean_return(Recording.load(path)):.1f}" if path.exists() else "-"

    curve = read_rows(HERE / f"{game}.csv")
    clock = np.array([float(row["ppo/seconds"] or 0) for row in curve])
    minutes = np.where(np.diff(clock, prepend=0) < 0, clock, np.diff(clock, prepend=0)).sum() / 60
    network = (
        f"{policy.get('encoder', config.get('encoder', 'nature'))}, {policy.get('view', 'game')}"
    )
    cells = [
        game,
        f"{facts.random:.1f}",
        tier("weak"),
        pair("seen"),
        pair("unseen"),
        tier("planned"),
    ]
    cells += [f"{facts.published[0]:.1f}, {facts.published[1]:.1f}", f"{way(recording):z.0%}"]
    cells += [f"{frames / 1e6:.1f}M", network, f"{minutes:.0f}"]
    return way(recording), "| " + " | ".join(cells) + " |"


def replace_table(page: Path, first: str, table: list[str]) -> None:
    """The table whose first line begins so becomes this one."""
    lines = page.read_text().split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    page.write_text("\n".join(lines[:begin] + table + lines[end:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--from", dest="folder", type=Path, default=Path("players"))
    parser.add_argument("games", nargs="*")
    chosen = parser.parse_args()
    for name in chosen.games:
        ship(name, chosen.folder)
    replace_table(DATA_PAGE, RECORDINGS, recordings_table())
    replace_table(HERE / "README.md", PLAYERS, players_table())
