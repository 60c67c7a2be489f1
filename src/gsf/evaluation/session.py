"""Plays what is missing of an evaluation, block by block, and adds it to the file of rows."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gsf.core.interrupts import Stop
from gsf.evaluation.code_of_rows import Code, note_code
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.options import EvaluateConfig
from gsf.evaluation.players import Player
from gsf.evaluation.rows import IDENTITY, KEYS, RESULTS, write_rows
from gsf.evaluation.splits import Split
from gsf.nets.acting import Mode

BLOCK = 4  # times n_envs: episodes that a kill may lose


def made_by(player: Player, rows: pd.DataFrame) -> pd.Series:
    """Which rows are of the player, by the names in their columns."""
    mine = pd.Series(data=True, index=rows.index)
    for name, value in player.names.items():
        mine &= rows[name] == value
    return mine


def lasting(player: Player, rows: pd.DataFrame) -> pd.Series:
    """The rows of a player that still hold: no episode would be longer if it were played now."""
    whole = rows[IDENTITY] == player.identity
    enough = rows["length"] >= (player.max_frames or np.inf)
    return made_by(player, rows) & (whole | enough)


@dataclass(frozen=True)
class Task:
    """Some modes of one player on the levels of a split."""

    player: Player
    split: Split
    modes: tuple[Mode, ...]
    levels: list[int]

    def among(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that are this task's."""
        mine = rows["level"].isin(self.levels) & rows["mode"].isin(self.modes)
        return rows[mine & (rows["split"] == self.split) & lasting(self.player, rows)]

    def missing(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Modes and levels that have no row yet, with their temperatures."""
        there = self.among(rows)
        have = set(zip(there["mode"], there["level"], strict=True))
        asked = [(m, x) for m in self.modes for x in self.levels if (m, x) not in have]
        left = pd.DataFrame(asked, columns=["mode", "level"]).astype({"level": np.int64})
        return left.assign(temperature=[self.player.at(mode) for mode, _ in asked])


class Session:
    """An evaluation at work: its rows so far, their file, the progress bar."""

    def __init__(
        self,
        config: EvaluateConfig,
        out: Path,
        rows: pd.DataFrame,
        code: Mapping[str, Code],
        stop: Stop,
        advance: Callable[..., None],
        n: int,
    ) -> None:
        self.config, self.out, self.rows, self._code = config, out, rows, code
        self._stop, self._advance, self._n = stop, advance, n
        self._episodes, self._frames, self._kept = 0, 0, 0
        self._started = time.monotonic()

    def write(self, rows: pd.DataFrame) -> None:
        note_code(self.out, self._code)
        self.rows = write_rows(self.out, rows)

    def fill(self, task: Task) -> None:
        """Makes the rows that the task lacks, block by block."""
        left, size = task.missing(self.rows), BLOCK * self.config.n_envs
        for at in range(0, len(left), size):
            if not self._stop.asked:
                new = self._play(task, left[at : at + size])
                if len(new):
                    rows = pd.concat([self.rows, new]) if len(self.rows) else new
                    self.write(rows.drop_duplicates(KEYS, keep="last"))
                self._kept += len(new)
                self._stop.kept = f"{self._kept} of {self._n} episodes are in {self.out}"

    def _play(self, task: Task, wanted: pd.DataFrame) -> pd.DataFrame:
        """Rows for the modes and levels wanted. An episode that two modes share is played once."""
        who, config, episode = task.player, self.config, ["level", "temperature"]
        there = self.rows[(self.rows["split"] == task.split) & lasting(who, self.rows)]
        known = there.drop_duplicates(episode)[[*episode, *RESULTS]]
        new = wanted.drop_duplicates(episode).merge(known, on=episode, how="left", indicator=True)
        new = new[new["_merge"] == "left_only"]
        self._count(len(wanted) - len(new), 0)
        if len(new):
            played = evaluate_agent(
                who.actor,
                who.game,
                new["level"].tolist(),
                new["temperature"].to_numpy(),
                seed=who.seed,
                n_envs=config.n_envs,
                difficulty=who.difficulty,
                threads=config.threads,
                max_frames=who.max_frames,
                count=self._count,
                stop=self._stop,
            )
            known = pd.concat([known, played]) if len(known) else played
        found = wanted.merge(known, on=episode, validate="many_to_one")
        by = [who.signature(n) if n == who.max_frames else who.identity for n in found["length"]]
        return found.assign(split=task.split, **who.names, **{IDENTITY: by})

    def _count(self, ended: int, played: int) -> None:
        self._episodes, self._frames = self._episodes + ended, self._frames + played
        speed = self._frames / max(time.monotonic() - self._started, 1e-9)
        self._advance(self._episodes, frames=f"{speed:,.0f}/s")
