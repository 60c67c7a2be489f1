"""Files in the current folder that are called like modules, and tell if they are run."""

from pathlib import Path

NAMES = ("multiprocessing", "numpy", "torch", "pandas", "rich", "tyro", "json", "random", "pickle")
NAMES += ("typing", "xxhash", "gymnasium", "matplotlib", "procgen", "site", "secrets")


def lay(folder: Path) -> None:
    for name in NAMES:
        trace = folder / f"{name}.run"
        text = f"open({str(trace)!r}, 'w').close()\nraise SystemExit('of the current folder')\n"
        (folder / f"{name}.py").write_text(text)


def gone_off(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.run"))
