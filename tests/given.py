"""Options of a sweep from words, as variants have them, and as words of a command line."""

from gsf.sweep.settings import parse


def given(*words):
    return dict(map(parse, words))


def on_command_line(options):
    words = []
    for name, value in options.items():
        owner, _, option = name.partition(".")
        flag = f"--{owner}.{'no-' if value is False else ''}{option}".replace("_", "-")
        several = [] if isinstance(value, bool) else value if isinstance(value, list) else [value]
        words += [flag, *map(str, several)]
    return words
