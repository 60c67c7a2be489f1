"""Presets: what each size (smoke, laptop, study, paper; grid) sets of every verb's options."""

from pathlib import Path
from typing import Any, Literal, get_args

from gsf.core.errors import UserError, did_you_mean

Size = Literal["smoke", "laptop", "study", "paper"]
Preset = Literal[Size, "grid"]  # another comparison, of its own suite


# preset -> verb -> option -> value. Whatever is not named keeps the default beside its use.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "run": {"preset": "smoke", "out": Path("results/smoke"), "games": ("coinrun",)},
        "collect": {
            "frames": 20_480,
            "transitions": 20_480,
            "n_envs": 16,
            "n_steps": 64,
            "minibatches": 8,
        },
        "materialise": {"transitions": 20_000},
        "fit": {"estimator": "mc", "diagnose": False, "allow_small_levels": True},
        "label": {"allow_small_levels": True},
        "train": {"encoder": "impala_small", "grad_steps": 20, "batch": 32, "checkpoint_every": 10},
        # Agents of 20 steps stand still until the game ends it.
        "evaluate": {"n_seen": 8, "n_validation": 4, "n_unseen": 8, "max_frames": 100},
    },
    "laptop": {
        "run": {"preset": "laptop", "out": Path("results/laptop"), "games": ("coinrun",)},
        "collect": {"frames": 2_000_000, "transitions": 500_000},
        "materialise": {"transitions": 100_000},
        "fit": {"estimator": "mc", "allow_small_levels": True},
        "label": {"allow_small_levels": True},
        "train": {"encoder": "impala_small", "grad_steps": 700, "checkpoint_every": 100},
        "evaluate": {"n_seen": 64, "n_validation": 24, "n_unseen": 64},
    },
    "study": {
        "run": {"preset": "study", "out": Path("results/study"), "seeds": 3},
        "collect": {"frames": 2_000_000, "transitions": 500_000},
        "fit": {  # Deviation: in few steps a value must travel far (docs/notebook.md)
            "estimator": "td",
            "grad_steps": 5_000,
            "encoder": "impala_small",
            "target_rate": 0.05,
        },
        "train": {"encoder": "impala_small", "grad_steps": 5_000, "keep": 10},
    },
    "paper": {
        "run": {
            "preset": "paper",
            "out": Path("results/paper"),
            "games": ("all",),
            "seeds": 5,
            "methods": ("all",),
        },
        "materialise": {"transitions": 5_000_000},
        "collect": {
            "frames": 25_000_000,
            "transitions": 5_000_000,
            "encoder": "impala",
            "n_steps": 256,
            "minibatches": 8,
            "epochs": 3,
            "view": "game",
        },
        "fit": {
            "estimator": "td",
            "grad_steps": 100_000,
            "n_steps": 1,
            "encoder": "impala",
            "q": True,
        },
        "train": {
            "encoder": "impala",
            "grad_steps": 1_000_000,
            "batch": 1024,
            "update": "alternating",
            "checkpoint_every": 5_000,
            "keep": 10,
        },
    },
    "grid": {  # labels of chance and of the truth beside those of the data, as in any comparison
        "run": {
            "preset": "grid",
            "out": Path("results/grid"),
            "recordings": ("grid5_looks-best",),
            "methods": (
                "bc",
                "cql",
                "gsf-reward",
                "gsf-reward+label.source=oracle",
                "gsf-reward+label.source=noise",
                "gsf-reward+label.source=permuted",
                "pse",
                "curl",
            ),
            "seeds": 10,
        },
        "fit": {"estimator": "mc", "diagnose": False},
        "train": {"encoder": "patches", "grad_steps": 2_000, "batch": 128},
        "evaluate": {"n_seen": 16, "n_validation": 32, "n_unseen": 64},
    },
}


def preset_values(verb: str, preset: str | None) -> dict[str, Any]:
    """What a preset sets of a verb's options."""
    if preset is not None and preset not in PRESETS:
        meant = did_you_mean(preset, PRESETS)
        raise UserError(f"unknown preset {preset!r}; {meant}choose one of {', '.join(PRESETS)}.")
    return PRESETS[preset].get(verb, {}) if preset else {}


def shorter_presets(verb: str, option: str, value: int) -> str:
    """Which presets do less of what takes the time of a verb, as a user would write them."""
    less = []
    for preset in get_args(Size):
        values = preset_values(verb, preset)
        if values.get("estimator") == "mc":  # which trains no network
            less.append(f"{preset} (estimator mc)")
        elif values.get(option, value) < value:
            less.append(f"{preset} ({values[option]:,} {option.replace('_', ' ')})")
    return f"--preset {', '.join(less)}" if less else ""
