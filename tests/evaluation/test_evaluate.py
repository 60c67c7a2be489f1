"""Real Procgen: every level once, rows that depend on agent, seed and level alone, going on."""

import gzip
import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import gsf
from gsf.behaviour.policy import save_policy
from gsf.behaviour.ppo import ActorCritic
from gsf.cli import main
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation import evaluate as evaluating
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.players import RandomActor, find_players
from gsf.evaluation.rollout import ask, rollout
from gsf.evaluation.rows import COLUMNS, read_rows, write_rows
from gsf.evaluation.temperature import choose
from gsf.learn.agent import load_agent
from gsf.nets.acting import TEMPERATURES, entropy, mode_at, sample, tempered
from gsf.reporting.gather import gather
from gsf.suites import facts_of, make_env
from gsf.suites.procgen import ProcgenVectorEnv
from players import LEVELS, HashAgent, train_run, write_dataset
from recordings import record
from signals import stopped

GAME = "starpilot"  # short whatever one does
FEW = {"n_seen": 3, "n_validation": 0, "n_unseen": 1, "device": "cpu"}
EPISODE = ["level", "temperature"]
UNSEEN = list(range(20, 31))  # eleven levels: three or four slots do not get the same number


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    return train_run(write_dataset(directory / "dataset"), directory / "run")


@pytest.fixture(scope="module")
def rows(run):
    return evaluate(EvaluateConfig(str(run), **FEW))


def test_episodes_cut_short_are_the_first_frames_of_whole_ones():
    whole = evaluate_agent(HashAgent(), GAME, UNSEEN, 1.0, seed=4, n_envs=4)
    most = int(whole["length"].median())
    cut = evaluate_agent(HashAgent(), GAME, UNSEEN, 1.0, seed=4, n_envs=4, max_frames=most)
    assert cut["length"].tolist() == whole["length"].clip(upper=most).tolist()
    ended = whole["length"] <= most
    pd.testing.assert_frame_equal(cut[ended], whole[ended])
    assert not cut.loc[~ended, "completed"].any()


def test_rows_cut_short_grow_into_those_that_were_never_cut(run, tmp_path, monkeypatch):
    """As --preset study after --preset smoke: more levels, each to its end."""
    few, more = FEW, FEW | {"n_seen": 4, "n_unseen": 2}
    whole = evaluate(EvaluateConfig(str(run), tmp_path / "whole.csv", **more))
    most = int(whole["length"].median())
    out = tmp_path / "rows.csv"
    cut = evaluate(EvaluateConfig(str(run), out, max_frames=most, **few))
    assert set(cut["length"] == most) == {True, False}
    asked = played_levels(monkeypatch)
    grown = evaluate(EvaluateConfig(str(run), out, **more))
    pd.testing.assert_frame_equal(grown, whole)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    known = set(zip(*(cut.loc[cut["length"] < most, x] for x in EPISODE), strict=True))
    played = [pair for levels, at in asked for pair in zip(levels, at, strict=True)]
    assert sorted(played) == sorted(set(zip(*(whole[x] for x in EPISODE), strict=True)) - known)
    asked.clear()
    for fewer in (most, None):  # a whole episode is as good as its first frames
        evaluate(EvaluateConfig(str(run), out, max_frames=fewer, **few))
    assert not asked
    pd.testing.assert_frame_equal(read_rows(out)[COLUMNS], whole)


def test_in_a_folder_that_cannot_be_written_what_is_there_is_shown_and_more_is_refused(
    run, rows, monkeypatch, capsys
):
    asked = played_levels(monkeypatch)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(evaluating, "locked", None)
    again = evaluate(EvaluateConfig(str(run), **FEW))
    pd.testing.assert_frame_equal(again, rows)
    assert "has these rows already" in capsys.readouterr().err
    refused = pytest.raises(
        UserError, match=r"returns.csv cannot be written: you may not write into"
    )
    with refused:
        evaluate(EvaluateConfig(str(run), **FEW | {"n_unseen": 2}))
    (run / "returns.csv").rename(run / "aside.csv")
    monkeypatch.setattr(evaluating, "_levels", None)  # which play to tell levels apart
    with refused:
        evaluate(EvaluateConfig(str(run), **FEW))
    (run / "aside.csv").rename(run / "returns.csv")
    assert not asked


def play_alone(agent, game, level, temperature, seed):
    """One env, one level, step by step."""
    env = make_env(game, range(level, level + 1), 1, seed=5)
    obs, _ = env.reset()
    rng, total, spread = np.random.default_rng([seed, level]), 0.0, []
    classes = facts_of(game).action_classes
    while True:
        policy = agent.policy(obs, np.array([temperature]))
        spread.append(entropy(np.bincount(classes[: policy.size], policy[0])))
        obs, reward, terminated, truncated, info = env.step(sample(policy, rng.random(1)))
        total += float(reward[0])
        if terminated[0] or truncated[0]:
            return total, len(spread), bool(info["completed"][0]), round(np.mean(spread), 4)


@pytest.mark.parametrize(("game", "temperature"), [("fruitbot", 0.0), ("leaper", 1.0)])
def test_rows_equal_a_slow_loop_over_single_levels(game, temperature):
    rows = evaluate_agent(HashAgent(), game, UNSEEN, temperature, seed=4, n_envs=4)
    assert rows["level"].tolist() == UNSEEN  # each once, in the order given
    slow = [play_alone(HashAgent(), game, level, temperature, 4) for level in UNSEEN]
    found = rows[["return", "length", "completed", "entropy"]].itertuples(index=False, name=None)
    assert list(found) == slow
    assert len(set(rows["length"])) > 5
    assert rows["return"].any()
    assert rows["completed"].any() == (game == "leaper")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_do_not_depend_on_order_or_number_of_envs(temperature):
    game = "fruitbot"
    first = evaluate_agent(HashAgent(), game, UNSEEN, temperature, n_envs=1)
    for n_envs, levels in ((3, UNSEEN), (4, UNSEEN[::-1]), (100, UNSEEN)):
        again = evaluate_agent(HashAgent(), game, levels, temperature, n_envs=n_envs, threads=1)
        pd.testing.assert_frame_equal(again.sort_values("level", ignore_index=True), first)


def test_one_level_may_be_played_at_several_temperatures_at_once():
    mixed = evaluate_agent(HashAgent(), "fruitbot", [20, 20, 21, 20], [0.0, 1.0, 1.0, 0.0])
    pd.testing.assert_series_equal(mixed.iloc[0], mixed.iloc[3], check_names=False)
    for temperature, at in ((0.0, [0]), (1.0, [1, 2])):
        levels = mixed["level"].iloc[at].tolist()
        alone = evaluate_agent(HashAgent(), "fruitbot", levels, temperature)
        pd.testing.assert_frame_equal(alone, mixed.iloc[at].reset_index(drop=True))


def test_sampled_actions_depend_on_the_seed():
    one, other = (evaluate_agent(RandomActor(15), "fruitbot", UNSEEN, seed=n) for n in (0, 1))
    assert one["length"].tolist() != other["length"].tolist()
    shares = np.bincount(facts_of("fruitbot").action_classes) / 15
    assert set(one["entropy"]) == {round(float(entropy(shares)), 4)}


def test_slots_that_are_done_are_not_asked_again():
    agent = HashAgent()
    rows = evaluate_agent(agent, "fruitbot", UNSEEN, n_envs=11)
    playing = [(rows["length"] > t).sum() for t in range(rows["length"].max())]
    assert agent.batches == [n + -n % 8 for n in playing]


def test_random_play_takes_every_action_equally_often():
    policy = RandomActor(15).policy(np.zeros(1500), np.zeros(1500))
    actions = sample(policy, (np.arange(1500) + 0.5) / 1500)
    assert np.bincount(actions).tolist() == [100] * 15
    few = RandomActor(15, [4, 7]).policy(np.zeros(3), np.zeros(3))
    assert few.sum(1).tolist() == [1.0] * 3
    assert (few[:, [4, 7]] == 0.5).all()


class Recorded:
    """A run's agent that remembers what it saw and how it valued it."""

    def __init__(self, agent):
        self.agent, self.scores = agent, {}

    def policy(self, obs, temperature):
        scores = self.agent.scores(obs)
        self.scores |= {image.tobytes(): row for image, row in zip(obs, scores, strict=True)}
        return self.agent.policy(obs, temperature)


def assert_equal_but_for_rounding(a, b):
    """Values [n,A] of the same images; returns whether any best action differs."""
    assert np.abs(a - b).max() < 1e-5
    ties = a.argmax(1) != b.argmax(1)
    gap = np.diff(np.sort(a[ties], 1)[:, -2:], axis=1)
    assert (gap < 1e-4).all()
    return ties.any()


def test_another_number_of_envs_changes_a_network_by_rounding_only(run):
    """So rows may differ only after a near tie: none on the machine this was written on."""
    played = []
    for n_envs in (4, 3):
        agent = Recorded(load_agent(run))
        played.append((agent.scores, evaluate_agent(agent, GAME, UNSEEN[:4], n_envs=n_envs)))
    (first, rows), (other, other_rows) = played
    shared = first.keys() & other.keys()
    assert len(shared) > 100
    a, b = (np.stack([scores[key] for key in shared]) for scores in (first, other))
    assert assert_equal_but_for_rounding(a, b) or other_rows.equals(rows)


def test_threads_and_neighbours_change_values_by_rounding_only(run):
    agent, rng = load_agent(run), np.random.default_rng(0)
    obs = rng.integers(0, 256, (21, 64, 64, 3), dtype=np.uint8)
    recorded = Recorded(agent)
    before = torch.get_num_threads()
    values = []
    try:
        for threads, size in ((1, 21), (2, 21), (1, 5), (2, 7)):
            torch.set_num_threads(threads)
            for at in range(0, 21, size):
                part = obs[at : at + size]
                ask(recorded, part, np.zeros(len(part)), 15)
            values.append(np.stack([recorded.scores[image.tobytes()] for image in obs]))
    finally:
        torch.set_num_threads(before)
    assert values[0].std(0).min() > 0  # the images are not all one to it
    for other in values[1:]:
        assert_equal_but_for_rounding(values[0], other)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.ones(8), r"gave \[8\] for 8 images; it must give probabilities of at most 15"),
        (np.full((8, 16), 1 / 16), "at most 15 actions"),
        (np.full((3, 15), 1 / 15), r"gave \[3, 15\]"),
        (np.full((8, 15), 0.1), "no probabilities"),
        (np.full((8, 15), np.nan), "no probabilities"),
    ],
)
def test_an_agent_that_acts_wrongly_is_told(policy, message):
    class Wrong:
        def policy(self, obs, temperature):
            return policy

    with pytest.raises(UserError, match=message):
        evaluate_agent(Wrong(), "fruitbot", [1, 2])


def test_an_agent_of_distinct_actions_plays_the_suites_ids(tmp_path):
    game = "fruitbot"
    recording = tmp_path / "play.gsfrec"
    record(game, n_steps=60, n_envs=2, levels=range(4)).save(recording)
    data = materialise(MaterialiseConfig(str(recording), tmp_path / "dataset"))
    run = train_run(Dataset.open(data), tmp_path / "run")
    ids = facts_of(game).distinct_actions
    agent = load_agent(run)
    assert agent.n_actions == len(ids) == 4
    obs, rng = make_env(game, range(4), 8, seed=0).reset()[0], np.random.default_rng(0)
    for uniform in rng.random((20, 8)):
        chosen = sample(tempered(agent.scores(obs), 1.0), uniform)
        assert agent.act(obs, "sampled", uniform).tolist() == ids[chosen].tolist()
    played = list(rollout(agent, game, [3], 1.0, seed=1))
    assert {int(step.action[0]) for step in played} == set(ids.tolist()) == {1, 4, 7, 9}
    assert find_players(str(run))[0].actor.actions == tuple(ids)
    rows = evaluate(EvaluateConfig(str(run), splits=("seen",), **FEW | {"n_seen": 1}))
    assert rows["length"].tolist()[1] > 1


def test_rows_of_a_run_are_written_and_found_by_the_report(run, rows):
    assert rows.columns.tolist() == COLUMNS
    assert set(zip(rows["game"], rows["method"], rows["seed"], rows["step"], strict=True)) == {
        (GAME, "cql", 3, 2)
    }
    assert rows[rows["split"] == "seen"]["level"].unique().tolist() == sorted(LEVELS[:3])
    assert rows[rows["split"] == "unseen"]["level"].unique().tolist() == [1_000_000]
    assert rows.groupby(["split", "mode"]).size().tolist() == [3, 3, 3, 1, 1, 1]
    assert rows.groupby("mode")["temperature"].first().to_dict() == {
        "greedy": 0.0,
        "sampled": 1.0,  # no validation levels, so nothing chose another
        "sampled-1": 1.0,
    }
    assert (rows["entropy"] == 0).tolist() == (rows["mode"] == "greedy").tolist()
    found, problems = gather([run])
    assert not problems
    assert found["return"].tolist() == rows["return"].tolist()
    alone = evaluate_agent(load_agent(run), GAME, [1_000_000], 1.0, seed=3)
    mine = rows[(rows["level"] == 1_000_000) & (rows["mode"] == "sampled")]
    assert mine["return"].tolist() == alone["return"].tolist()
    assert mine["length"].tolist() == alone["length"].tolist()
    assert gsf.evaluate is evaluate


def test_the_same_agent_evaluated_twice_gives_the_same_bytes(run, rows, tmp_path):
    again = evaluate(EvaluateConfig(str(run), tmp_path / "again.csv", n_envs=2, **FEW))
    pd.testing.assert_frame_equal(again, rows)
    assert (tmp_path / "again.csv").read_bytes() == (run / "returns.csv").read_bytes()
    kept = evaluate(EvaluateConfig(str(run), **FEW))  # read, not played
    pd.testing.assert_frame_equal(kept, rows)


def test_parquet_holds_the_same_rows(tmp_path):
    pytest.importorskip("pyarrow", exc_type=ImportError)
    config = EvaluateConfig("random", tmp_path / "a.csv", game=GAME, **FEW)
    evaluate(config)
    rows = evaluate(EvaluateConfig("random", tmp_path / "c.parquet", game=GAME, **FEW))
    again = evaluate(EvaluateConfig("random", tmp_path / "c.parquet", game=GAME, **FEW))
    pd.testing.assert_frame_equal(again, rows)
    stored = pd.read_parquet(tmp_path / "c.parquet")
    assert stored.to_csv(index=False) == (tmp_path / "a.csv").read_text()


def test_a_compressed_file_holds_the_same_rows_and_goes_on(tmp_path):
    for name in ("a.csv", "b.csv.gz"):
        for splits in (("seen",), ("seen", "unseen")):
            config = EvaluateConfig("random", tmp_path / name, game=GAME, **FEW, splits=splits)
            rows = evaluate(config)
    assert len(rows) == 4 * 2
    text = gzip.decompress((tmp_path / "b.csv.gz").read_bytes())
    assert text == (tmp_path / "a.csv").read_bytes()


def test_digests_that_look_like_numbers_survive_a_file(rows, tmp_path):
    named = rows.assign(agent="0123456789012345")
    written = write_rows(tmp_path / "rows.csv", named)
    pd.testing.assert_frame_equal(read_rows(tmp_path / "rows.csv"), written)


def test_all_plays_every_kept_checkpoint_once(run, tmp_path):
    some = {"splits": ("unseen",), "modes": ("greedy",)}
    rows = evaluate(EvaluateConfig(str(run), tmp_path / "rows.csv", all=True, **some, **FEW))
    assert rows["step"].tolist() == [1, 2]


def played_levels(monkeypatch, stop_at=None):
    """What evaluate asks to be played from now on; it may be killed at the n-th request."""
    asked = []

    def watch(agent, game, levels, temperature, **options):
        asked.append((list(levels), list(temperature)))
        if len(asked) == stop_at:
            raise KeyboardInterrupt
        return evaluate_agent(agent, game, levels, temperature, **options)

    module = sys.modules["gsf.evaluation.session"]
    monkeypatch.setattr(module, "evaluate_agent", watch)
    return asked


def test_a_killed_evaluation_goes_on_where_it_was(tmp_path, monkeypatch):
    options = {**FEW, "game": "fruitbot", "n_envs": 1}  # four episodes at most are lost
    config = EvaluateConfig("random", tmp_path / "whole.csv", **options)
    evaluate(config)
    killed = EvaluateConfig("random", tmp_path / "killed.csv", **options)
    with monkeypatch.context() as patch:
        played_levels(patch, stop_at=2)
        with pytest.raises(KeyboardInterrupt):
            evaluate(killed)
    assert len(pd.read_csv(tmp_path / "killed.csv")) == 6
    asked = played_levels(monkeypatch)
    evaluate(killed)
    # Temperature 1 is played once for both modes that ask for it.
    assert asked == [([1_000_000], [1])]
    whole = (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "killed.csv").read_bytes() == whole
    (tmp_path / ".killed.csv.lock").touch()  # by one that was killed at its very end
    evaluate(killed)
    assert len(asked) == 1  # all there: nothing is played
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        f"{name}.csv{end}" for name in ("whole", "killed") for end in ("", ".code.json")
    }


def test_asked_to_stop_it_keeps_the_episodes_that_are_over(tmp_path):
    options = {"game": "fruitbot", "modes": ("greedy",), "n_envs": 2, **FEW}
    evaluate(EvaluateConfig("random", tmp_path / "whole.csv", **options))
    whole = pd.read_csv(tmp_path / "whole.csv")
    config = EvaluateConfig("random", tmp_path / "parts.csv", **options)
    at = int(whole["length"][:2].min()) + 1  # the second of the first two levels is under way
    said = stopped(evaluate, config, RandomActor, "policy", at)
    assert said == f"1 of 4 episodes are in {tmp_path / 'parts.csv'}"
    evaluate(config)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_more_levels_play_only_the_new_ones(tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    options = {"game": "fruitbot", "splits": ("seen",), "modes": ("greedy",)}
    evaluate(EvaluateConfig("random", out, n_seen=2, **options))
    asked = played_levels(monkeypatch)
    rows = evaluate(EvaluateConfig("random", out, n_seen=4, **options))
    assert asked == [([2, 3], [1, 1])]
    assert rows["level"].tolist() == [0, 1, 2, 3]
    assert len(evaluate(EvaluateConfig("random", out, n_seen=1, **options))) == 1
    assert len(pd.read_csv(out)) == 4


def test_rows_of_another_agent_of_the_same_name_are_refused(run, rows, tmp_path):
    options = {**FEW, "modes": ("greedy",), "splits": ("seen",)}
    shutil.copy(run / "returns.csv", tmp_path / "rows.csv")
    other = train_run(write_dataset(tmp_path / "dataset"), tmp_path / "other", lr=1e-2)
    with pytest.raises(UserError, match="rows of another cql for starpilot, seed 3, step 2"):
        evaluate(EvaluateConfig(str(other), tmp_path / "rows.csv", **options))
    rows.to_csv(tmp_path / "foreign.csv", index=False)  # nobody knows whose rows these are
    with pytest.raises(UserError, match="rows of another cql"):
        evaluate(EvaluateConfig(str(run), tmp_path / "foreign.csv", **options))


def test_a_behaviour_policy_samples_or_takes_its_best(tmp_path):
    net = ActorCritic("impala_small", (64, 64, 3), 15)
    with torch.no_grad():
        net.policy.weight.zero_()
        net.policy.bias.copy_(torch.tensor([0.0] * 7 + [5.0] + [0.0] * 7))
    facts = {"game": "fruitbot", "mode": "easy", "encoder": "impala_small", "frames": 640}
    made = facts | {"config": {"start_level": 40, "n_levels": 2}}
    save_policy(tmp_path / "policy.pt", net, made)
    player = find_players(str(tmp_path / "policy.pt"), device="cpu")[0]
    assert (player.method, player.step, list(player.training)) == ("behaviour", 640, [40, 41])
    obs, uniform = np.zeros((300, 64, 64, 3), np.uint8), (np.arange(300) + 0.5) / 300
    assert set(sample(player.actor.policy(obs, np.zeros(300)), uniform)) == {7}
    drawn = sample(player.actor.policy(obs, np.ones(300)), uniform)
    share = np.bincount(drawn, minlength=15) / 300
    expected = torch.softmax(net.policy.bias.detach(), 0).numpy()
    np.testing.assert_allclose(share, expected, atol=1 / 300)
    config = EvaluateConfig(str(tmp_path), tmp_path / "rows.csv", splits=("seen",), **FEW)
    assert evaluate(config)["level"].tolist() == [40, 41] * 3
    with pytest.raises(UserError, match="coinrun and fruitbot"):
        find_players(str(tmp_path / "policy.pt"), game="coinrun")


def test_what_counts_as_seen_can_be_said_by_a_dataset(run):
    player = find_players("random", dataset=run.parent / "dataset")[0]
    assert (player.game, tuple(player.training)) == (GAME, LEVELS)


def test_equal_actions_count_as_one_in_the_entropy():
    same, n = facts_of("fruitbot").same_actions[0], 15
    still = RandomActor(n, same)  # eight names of one action
    assert evaluate_agent(still, "fruitbot", UNSEEN[:2])["entropy"].tolist() == [0.0, 0.0]
    one_of_each = RandomActor(n, facts_of("fruitbot").distinct_actions)
    found = evaluate_agent(one_of_each, "fruitbot", UNSEEN[:2])["entropy"]
    assert found.tolist() == pytest.approx([np.log(4)] * 2, abs=1e-4)


def test_slots_without_a_level_are_let_go(monkeypatch):
    kept, keep = [], ProcgenVectorEnv.keep

    def spy(env, slots):
        kept.append(len(slots))
        return keep(env, slots)

    monkeypatch.setattr(ProcgenVectorEnv, "keep", spy)
    rows = evaluate_agent(HashAgent(), "fruitbot", UNSEEN, n_envs=len(UNSEEN))
    assert kept == sorted(kept, reverse=True)
    assert kept[0] <= len(UNSEEN) // 2
    alone = evaluate_agent(HashAgent(), "fruitbot", UNSEEN, n_envs=1)
    pd.testing.assert_frame_equal(rows, alone)


def test_random_play_has_no_greedy_rows_and_modes_are_explained(tmp_path, capsys):
    few = {"splits": ("seen",), "n_seen": 1, "max_frames": 2}
    rows = evaluate(EvaluateConfig("random", tmp_path / "a.csv", game=GAME, **few))
    assert [*rows["mode"]] == ["sampled", "sampled-1"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "sampled-1: drawn at temperature 1" in shown
    assert "greedy" not in shown
    asked = EvaluateConfig("random", tmp_path / "b.csv", game=GAME, modes=("greedy",), **few)
    assert [*evaluate(asked)["mode"]] == ["sampled"]


def test_random_play_draws_among_what_agents_choose_among(tmp_path):
    image = np.zeros((1, 64, 64, 3), np.uint8)

    def drawn(**options):
        player = find_players("random", **options)[0]
        return np.flatnonzero(player.actor.policy(image, np.ones(1))[0]), player.identity

    distinct = facts_of("fruitbot").distinct_actions.tolist()
    found, name = drawn(game="fruitbot")
    assert found.tolist() == distinct
    few = write_dataset(tmp_path / "few", "fruitbot", actions=distinct)
    assert drawn(dataset=few.path)[1] == name
    as_published = write_dataset(tmp_path / "all", "fruitbot")
    found, other = drawn(dataset=as_published.path)
    assert found.tolist() == list(range(15))
    assert other != name
    for ids in ([0, 99], [15, 3]):
        of_another = write_dataset(tmp_path / f"other{ids[0]}", "fruitbot", actions=ids)
        with pytest.raises(UserError, match=r"fruitbot cannot be played by .*: it has 15 actions"):
            drawn(dataset=of_another.path)


def test_data_that_is_not_procgen_cannot_be_played(tmp_path):
    dataset = write_dataset(tmp_path / "dataset", game="corridor", obs_shape=(12, 12, 3))
    run = train_run(dataset, tmp_path / "run")
    with pytest.raises(UserError, match=r"trained on corridor, .* gsf\.load_agent"):
        evaluate(EvaluateConfig(str(run), **FEW))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no nowhere; name a run"),
        (["random", "--out", "r.csv"], "which game?"),
        (["random", "--game", "fruitbot"], "give --out"),
        (["random", "--game", "pong", "--out", "r.csv"], "unknown game 'pong'"),
        (["random", "--game", "maze", "--out", "r.txt"], "ends in .csv, .csv.gz or .parquet"),
        (["random", "--game", "maze", "--out", "r.csv", "--all"], "has kept no checkpoints"),
        (["random", "--game", "maze", "--out", "r.csv", "--n-envs", "-1"], "must be between 1 and"),
        (["random", "--game", "maze", "--out", "r.csv", "--n-unseen", "-1"], "between 0 and"),
        (["random", "--game", "maze", "--out", "r.csv", "--seed", "-1"], "between 0 and"),
        (["random", "--game", "maze", "--out", "r.csv", "--splits"], "at least one value"),
        (["RUN", "--game", "maze"], "it cannot play maze"),
        (["EMPTY"], "no checkpoint"),
        (["DATASET"], "holds a dataset, not a run"),
    ],
)
def test_bad_requests_say_what_is_wrong(run, tmp_path, monkeypatch, capfd, arguments, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(run / "manifest.json", empty)
    paths = {"RUN": str(run), "EMPTY": str(empty), "DATASET": str(run.parent / "dataset")}
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *(paths.get(word, word) for word in arguments)]) == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_unknown_splits_and_modes_are_named():
    with pytest.raises(UserError, match="unknown split 'train'; choose from seen"):
        EvaluateConfig("random", splits=("train",))
    with pytest.raises(UserError, match="unknown mode 'best'"):
        EvaluateConfig("random", modes=("best",))


# The temperature of sampled actions


CHOOSING = {"n_seen": 2, "n_validation": 3, "n_unseen": 2, "device": "cpu"}


@pytest.fixture
def fresh(run, tmp_path):
    """The run before anybody evaluated it."""
    names = ("manifest.json", "checkpoint.pt", "checkpoints", "DONE")
    shutil.copytree(run, tmp_path / "run", ignore=lambda _, found: set(found) - {*names})
    shutil.copytree(run / "checkpoints", tmp_path / "run" / "checkpoints", dirs_exist_ok=True)
    return tmp_path / "run"


def prefer(monkeypatch, best, kill_at=None, real=False):
    """Play is as if one temperature were the best; what was played, in order."""
    played = []

    def watch(agent, game, levels, temperature, **options):
        temperature = np.asarray(temperature)
        played.extend(zip(levels, temperature.tolist(), strict=True))
        if kill_at is not None and any(level >= kill_at for level in levels):
            raise KeyboardInterrupt
        rows = pd.DataFrame({"level": levels, "temperature": temperature, "length": 9})
        if real:
            rows = evaluate_agent(agent, game, levels, temperature, **options)
        made_up = {"return": np.where(temperature == best, 3.0, 1.0)}
        return rows.assign(completed=False, entropy=temperature, **made_up)

    monkeypatch.setattr(sys.modules["gsf.evaluation.session"], "evaluate_agent", watch)
    return played


def test_validation_levels_choose_before_any_other_level_is_played(fresh, monkeypatch):
    played = prefer(monkeypatch, 0.35, real=True)
    rows = evaluate(EvaluateConfig(str(fresh), **CHOOSING))
    levels = [500_000, 500_001, 500_002]
    n = len(TEMPERATURES) * len(levels)
    assert sorted(played[:n]) == sorted((x, t) for x in levels for t in TEMPERATURES)
    assert {t for level, t in played[n:] if level not in levels} == {0.0, 0.35, 1.0}
    assert len(played) == len(set(played))  # the same episode is never played twice
    temperature = rows.groupby("mode")["temperature"].unique().to_dict()
    assert temperature == {"greedy": [0.0], "sampled": [0.35], "sampled-1": [1.0]}
    kept = read_rows(fresh / "returns.csv")
    grid = kept[kept["split"] == "validation"]
    assert {mode_at(t) for t in TEMPERATURES} < set(grid["mode"])
    assert set(kept[kept["split"] == "unseen"]["mode"]) == {"greedy", "sampled", "sampled-1"}
    agent = load_agent(fresh)
    assert agent.temperature == 0.35
    assert load_agent(fresh, step=1).temperature == 1.0  # that network has not chosen
    obs, uniform = np.zeros((50, 64, 64, 3), np.uint8), np.linspace(0, 0.99, 50)
    assert (agent.act(obs, "sampled", uniform) == agent.act(obs, "sampled-0.35", uniform)).all()


def test_a_kill_before_during_or_after_the_choice_changes_nothing(fresh, monkeypatch, tmp_path):
    shutil.copytree(fresh, tmp_path / "other")
    with monkeypatch.context() as patch:
        prefer(patch, 0.5)
        evaluate(EvaluateConfig(str(tmp_path / "other"), **CHOOSING))
    for kill_at in (500_000, 1_000_000):
        with monkeypatch.context() as patch:
            prefer(patch, 0.5, kill_at)
            with pytest.raises(KeyboardInterrupt):
                evaluate(EvaluateConfig(str(fresh), **CHOOSING))
        assert (fresh / "temperature.json").is_file() == (kill_at > 500_000)
    prefer(monkeypatch, 0.5)
    evaluate(EvaluateConfig(str(fresh), **CHOOSING))
    for name in ("returns.csv", "temperature.json"):
        assert (fresh / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_choice_is_made_once(fresh, monkeypatch, capsys):
    prefer(monkeypatch, 0.7)
    evaluate(EvaluateConfig(str(fresh), **CHOOSING))
    prefer(monkeypatch, 0.25)
    more = {**CHOOSING, "n_validation": 7}  # most of them would choose another
    rows = evaluate(EvaluateConfig(str(fresh), **more))
    assert set(rows.loc[rows["mode"] == "sampled", "temperature"]) == {0.7}
    shown = " ".join(capsys.readouterr().err.split())
    assert "would choose temperature 0.25, but 0.7 was chosen before and stays" in shown


def test_rows_sampled_before_there_was_a_choice_are_kept_as_what_they_are(fresh, monkeypatch):
    alone = {**CHOOSING, "modes": ("sampled",)}
    evaluate(EvaluateConfig(str(fresh), **{**alone, "n_validation": 0}))
    assert not (fresh / "temperature.json").exists()
    assert load_agent(fresh).temperature == 1.0
    played = prefer(monkeypatch, 0.5)
    rows = evaluate(EvaluateConfig(str(fresh), **alone))
    assert set(rows["temperature"]) == {0.5}
    kept = read_rows(fresh / "returns.csv").query("split == 'unseen'")
    assert sorted(kept.groupby("mode")["temperature"].first().items()) == [
        ("sampled", 0.5),
        ("sampled-1", 1.0),
    ]
    assert (1_000_000, 1.0) not in played


def test_of_equal_temperatures_the_highest_is_chosen_and_references_have_none(fresh, tmp_path):
    levels = {**CHOOSING, "n_seen": 0, "n_unseen": 0}
    evaluate(EvaluateConfig("random", tmp_path / "random.csv", game=GAME, **levels))
    assert set(read_rows(tmp_path / "random.csv")["temperature"]) == {1.0}
    rows = pd.DataFrame(
        [(mode_at(t), "validation", x) for t in TEMPERATURES for x in (2.0, t == 0.7)],
        columns=["mode", "split", "return"],
    )
    player = find_players(str(fresh), device="cpu")[0]
    assert list(choose(player, rows)) == ["0.7", "1", "0.5", "0.35", "0.25"]


def test_a_damaged_choice_is_named(fresh):
    (fresh / "temperature.json").write_text("{")
    with pytest.raises(UserError, match=r"temperature\.json is damaged"):
        load_agent(fresh)
