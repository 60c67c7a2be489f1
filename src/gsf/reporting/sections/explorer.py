"""Section "Explorer": neighbours of observations from other levels, under every method's embedding.

The page's script shows them; only pictures and ids of neighbours go into the page.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.core.results import Results, Stage
from gsf.learn.legend import colour
from gsf.reporting import pictures
from gsf.reporting.page import Page, Part, Shown, part, text
from gsf.studies import embeddings
from gsf.studies.embeddings import PIXELS, Sample

TILE_BYTES = 6_500_000  # of all pictures
N_QUERIES, K = 84, 5  # observations to click on, and neighbours shown of each
SHEET_COLUMNS = 32
Array = NDArray[Any]
Runs = Mapping[str, Mapping[str, Stage]]  # game -> method -> run


def explorer(runs: Runs, found: Results, n_sample: int, page: Page) -> list[Part | None]:
    data: list[dict[str, Any]] = []
    agreement: list[dict[str, Any]] = []
    limit = TILE_BYTES // max(len(runs), 1)
    with progress("neighbours", len(runs), "games") as advance:
        for done, (game, by_method) in enumerate(runs.items(), 1):
            with page.attempt(f"No neighbours for {game}"):
                shown, rows = explore(game, by_method, found, n_sample, limit, page)
                data.append(shown)
                agreement += rows
            advance(done)
    if not data:
        return []
    page.data["explorer"] = data
    intro = (
        "Choose an observation: these are its nearest neighbours from other levels under every "
        "method's embedding z, and under the raw pixels. The frame marks neighbours in the same "
        "value quantile of their own level (1: the lowest values). R is the return of the episode."
    )
    names = {"k": str(K), "n": f"{agreement[0]['n']:,}"}
    return [text(intro), part("explorer"), *page.show([AGREEMENT], agreement, **names)]


def _agreement(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The table: chance is one more method, and the mean over games one more game."""
    frame = pd.DataFrame(rows)
    chance = frame.drop_duplicates("game").assign(method="chance", low=np.nan, high=np.nan)
    frame = pd.concat([frame, chance.assign(value=chance["chance"])]).drop(columns="chance")
    if frame["game"].nunique() > 1:
        mean = frame.groupby("method", as_index=False)["value"].mean()
        frame = pd.concat([frame, mean.assign(game="mean")])
    return frame


AGREEMENT = Shown(
    "agreement",
    "How often neighbours agree in value quantile",
    _agreement,
    words="Share of the {k} nearest neighbours from other levels that lie in the same value "
    "quantile, over {n} training observations per game, of the run with the lowest seed; "
    "brackets: 95 % intervals over levels. chance: any observation of another level; "
    "pixels: no learning, the images themselves.",
    index="method",
    columns="game",
)


def explore(
    game: str, runs: Mapping[str, Stage], found: Results, n_sample: int, limit: int, page: Page
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One game: what the script shows, and rows of the table. `limit`: bytes of the pictures."""
    dataset = found.dataset_of(next(iter(runs.values())))
    if dataset is None:
        raise UserError("its dataset is not there any more")
    sample = embeddings.draw_sample(dataset, found.labels_of(dataset, "reward"), n_sample)
    queries = over_levels(sample.level, N_QUERIES)
    pool = _pool(len(sample.level), queries, len(runs) + 1, limit)
    k = min(K, len(pool) - int(np.bincount(sample.level[pool]).max()))  # in other levels
    rows: list[dict[str, Any]] = []
    neighbours: dict[str, Array] = {}

    def add(method: str, z: Array) -> None:
        similar = embeddings.similarity(z, sample.level)
        neighbours[method] = pool[embeddings.nearest(similar[queries][:, pool], k)]
        facts = {"chance": sample.chance, "k": k, "n": len(sample.level)}
        agreed = embeddings.agree(similar, sample, k)
        rows.append({"game": game, "method": method, **agreed, **facts})

    for method, run in runs.items():
        with page.attempt(f"{run.path}: no neighbours under its embedding"):
            add(method, embeddings.embed(run, dataset, sample.obs))
    if not neighbours:
        raise UserError("no run has a checkpoint to embed observations with")
    add(PIXELS, embeddings.flat_pixels(sample.obs))
    about = (
        f"{len(queries)} observations of {game}'s training data; their {k} nearest (cosine) from "
        f"other levels among {len(pool):,} of {len(np.unique(sample.level[pool]))} levels. "
        "Choose one."
    )
    agreed = [round(row["value"], 4) for row in rows]
    shown = _for_script(sample, queries, neighbours, agreed, limit)
    return {"game": game, "about": about, **shown}, rows


def over_levels(level: Array, n: int) -> NDArray[np.int64]:
    """n rows: one of every level, then a second one of every level, and so on, at random."""
    order = np.random.default_rng(1).permutation(len(level))
    turn = pd.Series(level[order]).groupby(level[order]).cumcount()
    return order[np.argsort(turn.to_numpy(), kind="stable")][:n]


def _pool(n: int, queries: Array, n_methods: int, limit: int) -> NDArray[np.int64]:
    """Rows that may be shown as neighbours: all, or as many as there is room for pictures."""
    fit = limit // pictures.BYTES
    if len(queries) * (1 + n_methods * K) <= fit or n <= fit:
        return np.arange(n)
    chosen = np.random.default_rng(2).choice(n, max(fit - len(queries), 4 * K), replace=False)
    return np.sort(chosen)


def _for_script(
    sample: Sample,
    queries: Array,
    neighbours: Mapping[str, Array],
    agreed: Sequence[float],
    limit: int,
) -> dict[str, Any]:
    """What the script gets: pictures of all that is shown, and whose neighbours they are."""
    shown = np.unique(np.concatenate([queries, *(x.ravel() for x in neighbours.values())]))
    names = [sample.names[i] for i in sample.level[shown]]
    facts = (names, sample.label[shown].tolist(), sample.returns[shown].tolist())
    sheet = pictures.sheet(sample.obs[shown], SHEET_COLUMNS, limit)
    return {
        "bins": sample.n_bins,
        "columns": SHEET_COLUMNS,
        "sprite": base64.b64encode(sheet).decode(),
        "items": list(zip(*facts, strict=True)),
        "queries": np.searchsorted(shown, queries).tolist(),
        "methods": [
            {
                "name": method,
                "colour": "#777777" if method == PIXELS else colour(method),
                "neighbours": np.searchsorted(shown, near).tolist(),
                "agreement": share,
            }
            for (method, near), share in zip(neighbours.items(), agreed, strict=True)
        ],
    }
