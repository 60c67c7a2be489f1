"""Freezes a draft: `python tests/benchmark/freeze.py NAME`.

Writes its recordings' digests, takes the word draft out and notes its digest in frozen.json. From
then on a change is a new version.
"""

import json
import re
import sys
from pathlib import Path

from gsf.benchmark import catalogue
from gsf.data.recording import Recording

FROZEN = Path(__file__).with_name("frozen.json")


def freeze(path: Path, frozen: Path = FROZEN) -> str:
    protocol = catalogue.read(path)
    assert protocol.is_draft, f"{protocol.name} is frozen already"
    text = re.sub(r"(^# A draft.*\n)?^draft = true.*\n", "", path.read_text(), flags=re.MULTILINE)
    for fixed in protocol.said["recordings"].values():
        digest = Recording.load(fixed["name"]).digest
        text = re.sub(rf'(name = "{fixed["name"]}"[,\s]+digest = )"\w+"', rf'\1"{digest}"', text)
    path.write_text(text)
    digest = catalogue.read(path).digest
    known = json.loads(frozen.read_text()) | {protocol.name: digest}
    frozen.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return digest


if __name__ == "__main__":
    print(freeze(catalogue.PROTOCOLS / f"{sys.argv[1]}.toml"))
