"""Real Procgen: the video shows the very episode that evaluation counts."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from gsf.cli import main
from gsf.core.errors import UserError
from gsf.evaluation import video
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.players import Player, RandomActor
from gsf.evaluation.rollout import Step
from gsf.evaluation.video import PlayConfig, Video, play
from gsf.nets.acting import sample
from gsf.suites import make_env
from players import HashAgent, train_run, write_dataset

RANDOM = {"agents": "random", "game": "starpilot", "level": 1_000_003}


def episode(actor, tmp_path, **options):
    player = Player(actor, "starpilot", "mine", seed=2, step=0, identity="")
    config = PlayConfig("mine", 1_000_003, tmp_path / "video.gif", fps=5, scale=2, **options)
    return Video([player], 1_000_003, config)


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_frames_are_the_observations_of_the_evaluated_episode(tmp_path, mode):
    shown = episode(HashAgent(), tmp_path, mode=mode, caption=False)
    frames = list(shown.frames())
    temperature = {"greedy": 0.0, "sampled": 1.0}[mode]
    row = evaluate_agent(HashAgent(), "starpilot", [1_000_003], temperature, seed=2).iloc[0]
    [played] = shown.episodes
    completed = played.over == "completed"
    assert played.name == ("mine, greedy" if mode == "greedy" else "mine, sampled at 1")
    assert (played.total, played.length, completed) == tuple(row[["return", "length", "completed"]])
    assert len(frames) == row["length"] + 5  # and a second of the last one
    assert all(np.array_equal(frame, frames[-6]) for frame in frames[-5:])
    env, rng = make_env("starpilot", [1_000_003], 1, seed=9), np.random.default_rng([2, 1_000_003])
    obs, _ = env.reset()
    for frame in frames[: row["length"]]:
        assert frame.shape == (128, 128, 3)
        assert np.array_equal(frame[::2, ::2], obs[0])
        assert np.array_equal(frame[1::2, 1::2], obs[0])
        policy = HashAgent().policy(obs, np.array([temperature]))
        obs = env.step(sample(policy, rng.random(1)))[0]


def test_captions_are_above_and_below_and_the_lower_one_changes(tmp_path):
    plain = list(episode(RandomActor(15), tmp_path, caption=False, max_steps=9).frames())
    frames = list(episode(RandomActor(15), tmp_path, max_steps=9).frames())
    assert len(frames) == len(plain) == 9 + 5
    assert all(np.array_equal(a[24:152], b) for a, b in zip(frames, plain, strict=True))
    assert len({frame[:24].tobytes() for frame in frames}) == 1
    assert len({frame[152:].tobytes() for frame in frames[:9]}) == 9


def test_a_gif_needs_no_extra(tmp_path, capsys):
    out = play(PlayConfig(**RANDOM, out=tmp_path / "new" / "a.gif", max_steps=12, fps=10))
    with Image.open(out) as image:
        assert image.size == (384, 432)
        assert image.n_frames > 2
        shown = []
        for number in range(image.n_frames):
            image.seek(number)
            shown.append(image.info["duration"])
    assert sum(shown) == (12 + 10) * 100  # equal frames may be joined into a longer one
    said = capsys.readouterr().out
    assert "a.gif: starpilot level 1000003" in said
    assert "random play: return 0, cut off after 12 steps" in said
    assert [path.name for path in out.parent.iterdir()] == ["a.gif"]


def test_mp4(tmp_path):
    av = pytest.importorskip("av")
    play(PlayConfig(**RANDOM, out=tmp_path / "a.mp4", max_steps=12, fps=10, caption=False))
    with av.open(str(tmp_path / "a.mp4")) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    first = make_env("starpilot", [1_000_003], 1, seed=0).reset()[0][0]
    assert len(frames) == 22
    assert np.abs(frames[0][3::6, 3::6].astype(float) - first).mean() < 12  # it is compressed
    assert np.abs(frames[11][3::6, 3::6].astype(float) - first).mean() > 12


def test_a_run_is_played_at_its_latest_or_a_kept_step(tmp_path, capsys):
    run = train_run(write_dataset(tmp_path / "dataset"), tmp_path / "run")
    for step in (None, 1):
        config = PlayConfig(
            str(run), 5, tmp_path / "a.gif", step=step, max_steps=2, fps=1, scale=1, device="cpu"
        )
        play(config)
        assert "cql, sampled at 1: return 0, cut off after 2 steps" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"no checkpoint at .*step_7\.pt"):
        play(PlayConfig(str(run), 5, tmp_path / "b.gif", step=7, device="cpu"))
    assert not (tmp_path / "b.gif").exists()


class Still:
    """A game in which nothing moves before the third step, nor after the sixth."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, actor, game, levels, temperature, **options):
        for t in range(self.steps):
            obs = np.full((1, 4, 4, 3), min(max(t, 3), 6), np.uint8)
            ended = np.array([t == self.steps - 1])
            zero = np.zeros(1)
            yield Step(np.zeros(1, int), obs, np.array([4]), zero, zero + 1, ended, ended)


def test_who_is_over_or_stands_still_waits_for_the_others(tmp_path, monkeypatch):
    facts = {"game": "starpilot", "seed": 0, "step": 0, "identity": ""}
    players = [Player(RandomActor(15), method=m, **facts) for m in ("random", "cql", "cql")]
    games = iter([Still(3), Still(50), Still(50)])
    monkeypatch.setattr(video, "rollout", lambda *a, **k: next(games)(*a, **k))
    config = PlayConfig("-", out=tmp_path / "a.gif", fps=1, scale=1, still=5, caption=False)
    shown = Video(players, 7, config)
    frames = list(shown.frames())
    assert frames[0].shape == (4, 3 * 4 + 2 * 8, 3)
    # 6 stands at steps 6 to 10: five in a row that are the same as before end at step 11
    assert len(frames) == 11 + 1
    assert [frame[0, 0, 0] for frame in frames] == [3] * 12
    assert [frame[0, -1, 0] for frame in frames] == [3, 3, 3, 3, 4, 5, *[6] * 6]
    assert [(x.name, x.result) for x in shown.episodes] == [
        ("random play", "return 3, completed after 3 steps"),
        *[("cql seed 0, sampled at 1", "return 11, stood still after 11 steps")] * 2,
    ]
    games = iter([Still(3), Still(50), Still(50)])
    every = replace(config, every=4, still=0)
    assert len(list(Video(players, 7, every).frames())) == 13 + 1


def test_several_are_shown_side_by_side_on_the_first_unseen_level(tmp_path, capsys):
    run = train_run(write_dataset(tmp_path / "dataset"), tmp_path / "run")
    words = f"play random {run} --out {tmp_path}/a.gif --max-steps 3 --fps 1 --scale 2"
    assert main(f"{words} --device cpu".split()) == 0
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == (2 * 128 + 8, 128 + 48)
    said = capsys.readouterr().out
    assert "starpilot level 1000000" in said  # that of the run; random has none
    assert said.index("random play: ") < said.index("cql, sampled at 1: ")


def test_a_video_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RandomActor, "policy", fail)
    with pytest.raises(KeyboardInterrupt):
        play(PlayConfig(**RANDOM, out=tmp_path / "a.gif"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random", "--level", "1", "--out", "a.gif"], "which game?"),
        (["random", "--game", "maze", "--level", "-1", "--out", "a.gif"], "must be between"),
        (["random", "--game", "maze", "--level", "1", "--out", "a.avi"], "ends in .gif or .mp4"),
        (["random", "--game", "maze", "--level", "1", "--out", "file/a.gif"], "cannot be made"),
        (
            ["random", "--game", "maze", "--level", "1", "--out", "a.gif", "--fps", "0"],
            "between 1 and",
        ),
        (["--level", "1"], "whom to watch?"),
        (["coinrun", "starpilot"], "plays one game, not coinrun and starpilot"),
        (["gone", "--level", "1", "--out", "a.gif"], "there is no gone"),
        (["random", "--game", "maze", "--step", "3", "--level", "1", "--out", "a.gif"], "no kept"),
    ],
)
def test_bad_requests_say_what_is_wrong(tmp_path, monkeypatch, capfd, arguments, message):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["play", *arguments]) == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
