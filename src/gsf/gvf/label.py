"""Stage: GVF -> per-level quantile labels (paper: "Measuring distances between GVFs").

Out: label.npy int8 [n] or [n,d], 0..K-1, -1 where ignored; rank.npy float32, the rank within the
level, NaN where ignored; values.npy, and action_values.npy of a SARSA fit, for in-batch quantiles.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, digest, digest_file
from gsf.core.logs import console
from gsf.core.stage import Identity, read_manifest
from gsf.data.dataset import Dataset
from gsf.equations import quantile_labels, within_level_rank
from gsf.gvf.bins import CANDIDATE_BINS, bins_table, choose_bins
from gsf.gvf.controls import check_source, values_of
from gsf.gvf.diagnostics import stability, time_left_correlation
from gsf.gvf.levels import check_levels
from gsf.gvf.options import LabelConfig as LabelConfig
from gsf.gvf.training_labels import Array, read_values
from gsf.suites import find_game


def label(config: LabelConfig) -> Path:
    """Turns a fit's values into quantile labels of each level; returns their directory.

    label(LabelConfig(Path("gvf"), out=Path("labels"), n_bins=7))
    """
    manifest = read_manifest(config.gvf, "gvf")
    dataset = Dataset.open(config.dataset or Path(manifest["config"]["dataset"]))
    values = _values(config, manifest, dataset)
    inputs = {"dataset": dataset.digest, "gvf": manifest["digest"]} | decided_by(__name__)
    if config.source == "oracle":
        inputs |= decided_by(find_game(dataset.name)[0].make_env)
    resolved = {} if config.by_chance else {"seed": None}
    identity = Identity.of("labels", config, inputs, **resolved)
    other = _values_against(config, dataset, values)
    if not identity.is_done(config.out):
        check_levels(dataset, config.allow_small_levels, config.n_bins)
        _write(config, dataset, manifest, values, identity)
    else:
        console.print(f"{config.out} is there already.")
    _print_labels(config.out)
    if other is not None:
        _print_stability(config, dataset, values, other)
    if config.suggest_bins:
        rng = np.random.default_rng(0)
        terms = choose_bins(values, dataset.level, CANDIDATE_BINS, config.epsilon, rng)
        print(bins_table(terms, config.epsilon))
    return config.out


def _values(config: LabelConfig, fitted: dict[str, Any], dataset: Dataset) -> Array:
    """What labels are made of: the fit's, or what they are to be compared with."""
    check_source(config.source, dataset.name)
    if config.source == "oracle" and fitted["cumulant"] != "reward":
        raise UserError(f"oracle labels are of reward, not of {fitted['cumulant']}.")
    values, gamma = read_values(config.gvf, fitted, dataset), fitted["config"]["gamma"]
    return values_of(config.source, values, dataset, gamma, config.seed)


def _write(
    config: LabelConfig, dataset: Dataset, fitted: dict[str, Any], values: Array, identity: Identity
) -> None:
    found = quantile_labels(values, dataset.level, config.n_bins)
    rank = within_level_rank(values, dataset.level).astype(np.float32)
    small = np.bincount(dataset.level, minlength=dataset.n_levels) < config.n_bins
    found[small[dataset.level]], rank[small[dataset.level]] = -1, np.nan
    columns = found.reshape(len(found), -1)
    by_time = time_left_correlation(columns, dataset.rows_left)
    with atomic_directory(config.out) as out:
        dtype = np.int8 if config.n_bins < 128 else np.int64
        np.save(out / "label.npy", found.astype(dtype), allow_pickle=False)
        np.save(out / "rank.npy", rank, allow_pickle=False)
        np.save(out / "values.npy", values, allow_pickle=False)
        if config.source == "values" and "action_values.npy" in fitted["files"]:
            shutil.copyfile(config.gvf / "action_values.npy", out / "action_values.npy")
        files = {x.name: digest_file(x) for x in sorted(out.glob("*.npy"))}
        identity.write(
            out,
            digest(json.dumps(files)),
            cumulant=fitted["cumulant"],
            levels=dataset.levels,
            n=len(dataset),
            n_bins=config.n_bins,
            n_labels=columns.shape[1],
            files=files,
            histogram=np.bincount(columns[columns >= 0], minlength=config.n_bins).tolist(),
            share_ignored=float(np.mean(found < 0)),
            spearman_time_left=[None if np.isnan(x) else float(x) for x in by_time],
        )


def _print_labels(out: Path) -> None:
    manifest = read_manifest(out, "labels")
    each = f", {manifest['n_labels']} each" if manifest["n_labels"] > 1 else ""
    source = manifest["config"]["source"]
    of = manifest["cumulant"] + ("" if source == "values" else f" ({source})")
    print(f"{out}: {of} labels of {manifest['n']:,} transitions{each}")
    print(histogram(manifest["histogram"]))
    known = [x for x in manifest["spearman_time_left"] if x is not None]
    by_time = f"{np.mean(known):+.3f}" if known else "n/a"
    print(f"ignored (-1)                    {manifest['share_ignored']:.1%}")
    print(f"Spearman with the time left     {by_time}")


def histogram(counts: Sequence[int], width: int = 40) -> str:
    """A bar per label, in eighths of a character."""
    total, most = max(sum(counts), 1), max(*counts, 1)
    lines = []
    for k, count in enumerate(counts):
        eighths = round(8 * width * count / most)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        lines.append(f"label {k:<3} {bar:<{width}} {count / total:6.1%}")
    return "\n".join(lines)


def _values_against(config: LabelConfig, dataset: Dataset, values: Array) -> Array | None:
    if config.against is None:
        return None
    other = read_values(config.against, read_manifest(config.against, "gvf"), dataset)
    if other.shape != values.shape:
        raise UserError(
            f"{config.against} has another number of components; compare fits of one cumulant."
        )
    return other


def _print_stability(config: LabelConfig, dataset: Dataset, values: Array, other: Array) -> None:
    one, two = (quantile_labels(x, dataset.level, config.n_bins) for x in (values, other))
    equal, kappa = stability(one, two, config.n_bins)
    shown = "n/a" if equal is None else f"{equal:.1%} equal"
    shown += "" if kappa is None else f", Cohen's kappa {kappa:.3f}"
    print(f"stability against {config.against}: {shown}")
