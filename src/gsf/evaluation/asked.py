"""Which file of rows and which checkpoints `gsf evaluate` is asked for."""

import importlib
from pathlib import Path

from gsf.core.errors import UserError
from gsf.evaluation.options import EvaluateConfig
from gsf.evaluation.players import checkpoint_steps, is_run


def find_file(config: EvaluateConfig, name: str) -> Path:
    """Where rows go: --out, or the file of this name in the run directory."""
    out = config.out
    if out is None:
        if not is_run(config.agent):
            raise UserError(f"give --out: {config.agent} is no run directory to write rows into.")
        return Path(config.agent) / name
    if not out.name.endswith((".csv", ".csv.gz", ".parquet")) or out.is_dir():
        raise UserError(f"--out {out} must be a file that ends in .csv, .csv.gz or .parquet.")
    if out.suffix == ".parquet":
        try:
            importlib.import_module("pyarrow")  # now, not when everything has been played
        except ImportError as error:
            raise UserError(
                f"Parquet needs pyarrow ({error}): pip install 'gsf-rl[parquet]', or choose .csv."
            ) from None
    return out


def find_steps(config: EvaluateConfig) -> list[int | None]:
    """Checkpoints to judge; None is the latest."""
    kept = checkpoint_steps(Path(config.agent)) if config.all else []
    if config.all and not kept:
        raise UserError(f"{config.agent} has kept no checkpoints; train it with --keep.")
    return [*kept, None]
