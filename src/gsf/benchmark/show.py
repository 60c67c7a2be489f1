"""`gsf benchmark list` and `gsf benchmark show`: the protocols, and what each fixes."""

from gsf.benchmark import catalogue
from gsf.benchmark.catalogue import PROTOCOLS, Protocol
from gsf.benchmark.options import ProtocolsConfig, ShowConfig


def list_protocols(_: ProtocolsConfig) -> None:
    for protocol in map(catalogue.find, catalogue.names()):
        games = f"{len(protocol.games)} game" + "s" * (len(protocol.games) > 1)
        print(f"{protocol.name:12} {games}, {protocol.seeds} seeds; {state(protocol)}")
        print(f"{'':12} {protocol.said['about']}")
        print(f"{'':12} Cost of {protocol.said['cost']}.")


def state(protocol: Protocol) -> str:
    rows = "rows of its baselines are here" if protocol.rows.is_file() else "no rows yet"
    kind = "draft" if protocol.is_draft else "frozen"
    return f"{kind}, digest {protocol.digest}; {rows}"


def show(config: ShowConfig) -> None:
    protocol = catalogue.find(config.protocol)
    print((PROTOCOLS / f"{protocol.name}.toml").read_text(encoding="utf-8"))
    print(f"# {state(protocol)}")
