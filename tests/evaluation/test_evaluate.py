"""Real Procgen: every level once, rows that depend on agent, seed and level alone, going on."""

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
from gsf.evaluation.evaluate import EvaluateConfig, evaluate, evaluate_agent, read_rows, write_rows
from gsf.evaluation.players import RandomActor, find_players
from gsf.evaluation.rollout import act, rollout
from gsf.evaluation.rows import COLUMNS
from gsf.learn.agent import load_agent
from gsf.reporting.gather import gather
from gsf.suites import facts_of
from gsf.suites.procgen import make_env
from players import LEVELS, HashAgent, train_run, write_dataset
from recordings import record
from signals import stopped

GAME = "starpilot"  # short whatever one does
FEW = {"n_seen": 3, "n_validation": 0, "n_unseen": 1, "device": "cpu"}
UNSEEN = list(range(20, 31))  # eleven levels: three or four slots do not get the same number


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    return train_run(write_dataset(directory / "dataset"), directory / "run")


@pytest.fixture(scope="module")
def rows(run):
    return evaluate(EvaluateConfig(str(run), **FEW))


def test_episodes_cut_short_are_the_first_frames_of_whole_ones():
    whole = evaluate_agent(HashAgent(), GAME, UNSEEN, "sampled", seed=4, n_envs=4)
    most = int(whole["length"].median())
    cut = evaluate_agent(HashAgent(), GAME, UNSEEN, "sampled", seed=4, n_envs=4, max_frames=most)
    assert cut["length"].tolist() == whole["length"].clip(upper=most).tolist()
    ended = whole["length"] <= most
    pd.testing.assert_frame_equal(cut[ended], whole[ended])
    assert not cut.loc[~ended, "completed"].any()


def test_rows_of_cut_and_of_whole_episodes_are_never_mixed(run, tmp_path):
    out = tmp_path / "rows.csv"
    evaluate(EvaluateConfig(str(run), out=out, max_frames=5, **FEW))
    with pytest.raises(UserError, match="rows of another"):
        evaluate(EvaluateConfig(str(run), out=out, **FEW))


def play_alone(agent, game, level, mode, seed):
    """One env, one level, step by step."""
    env = make_env(game, range(level, level + 1), 1, seed=5)
    obs, _ = env.reset()
    rng, total, length = np.random.default_rng([seed, level]), 0.0, 0
    while True:
        action = agent.act(obs, mode, rng.random(1))
        obs, reward, terminated, truncated, info = env.step(action)
        total, length = total + float(reward[0]), length + 1
        if terminated[0] or truncated[0]:
            return total, length, bool(info["completed"][0])


@pytest.mark.parametrize(("game", "mode"), [("fruitbot", "greedy"), ("leaper", "sampled")])
def test_rows_equal_a_slow_loop_over_single_levels(game, mode):
    rows = evaluate_agent(HashAgent(), game, UNSEEN, mode, seed=4, n_envs=4)
    assert rows["level"].tolist() == UNSEEN  # each once, in the order given
    slow = [play_alone(HashAgent(), game, level, mode, 4) for level in UNSEEN]
    found = rows[["return", "length", "completed"]].itertuples(index=False, name=None)
    assert list(found) == slow
    assert len(set(rows["length"])) > 5
    assert rows["return"].any()
    assert rows["completed"].any() == (game == "leaper")


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_rows_do_not_depend_on_order_or_number_of_envs(mode):
    first = evaluate_agent(HashAgent(), "fruitbot", UNSEEN, mode, n_envs=1)
    for n_envs, levels in ((3, UNSEEN), (4, UNSEEN[::-1]), (100, UNSEEN)):
        again = evaluate_agent(HashAgent(), "fruitbot", levels, mode, n_envs=n_envs, threads=1)
        pd.testing.assert_frame_equal(again.sort_values("level", ignore_index=True), first)


def test_sampled_actions_depend_on_the_seed():
    one, other = (evaluate_agent(RandomActor(15), "fruitbot", UNSEEN, seed=n) for n in (0, 1))
    assert one["length"].tolist() != other["length"].tolist()


def test_slots_that_are_done_are_not_asked_again():
    agent = HashAgent()
    rows = evaluate_agent(agent, "fruitbot", UNSEEN, n_envs=11)
    playing = [(rows["length"] > t).sum() for t in range(rows["length"].max())]
    assert agent.batches == [n + -n % 8 for n in playing]


def test_random_play_takes_every_action_equally_often():
    actions = RandomActor(15).act(np.zeros(0), "greedy", (np.arange(1500) + 0.5) / 1500)
    assert np.bincount(actions).tolist() == [100] * 15


class Recorded:
    """A run's agent that remembers what it saw and how it valued it."""

    def __init__(self, agent):
        self.agent, self.scores = agent, {}

    def act(self, obs, mode, uniform):
        scores = self.agent.scores(obs)
        self.scores |= {image.tobytes(): row for image, row in zip(obs, scores, strict=True)}
        return scores.argmax(1)


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
    obs, uniform = rng.integers(0, 256, (21, 64, 64, 3), dtype=np.uint8), rng.random(21)
    recorded = Recorded(agent)
    before = torch.get_num_threads()
    values = []
    try:
        for threads, size in ((1, 21), (2, 21), (1, 5), (2, 7)):
            torch.set_num_threads(threads)
            for at in range(0, 21, size):
                act(recorded, obs[at : at + size], "greedy", uniform[at : at + size], 15)
            values.append(np.stack([recorded.scores[image.tobytes()] for image in obs]))
    finally:
        torch.set_num_threads(before)
    assert values[0].std(0).min() > 0  # the images are not all one to it
    for other in values[1:]:
        assert_equal_but_for_rounding(values[0], other)


@pytest.mark.parametrize("actions", [[15] * 8, [-1] * 8, [3], [[0] * 8]])
def test_an_agent_that_acts_wrongly_is_told(actions):
    class Wrong:
        def act(self, obs, mode, uniform):
            return np.array(actions)

    with pytest.raises(UserError, match=r"one action in 0\.\.14 for each"):
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
        chosen = agent.choose(obs, "sampled", uniform)
        assert agent.act(obs, "sampled", uniform).tolist() == ids[chosen].tolist()
    played = list(rollout(agent, game, [3], "sampled", seed=1))
    assert {int(step.action[0]) for step in played} == set(ids.tolist()) == {1, 4, 7, 9}
    assert find_players(str(run))[0].actor.actions == tuple(ids)
    rows = evaluate(EvaluateConfig(str(run), splits=("seen",), n_seen=1, device="cpu"))
    assert rows["length"].tolist()[1] > 1


def test_rows_of_a_run_are_written_and_found_by_the_report(run, rows):
    assert rows.columns.tolist() == COLUMNS
    assert set(zip(rows["game"], rows["method"], rows["seed"], rows["step"], strict=True)) == {
        (GAME, "cql", 3, 2)
    }
    assert rows[rows["split"] == "seen"]["level"].unique().tolist() == sorted(LEVELS[:3])
    assert rows[rows["split"] == "unseen"]["level"].unique().tolist() == [1_000_000]
    assert rows.groupby(["split", "mode"]).size().tolist() == [3, 3, 1, 1]
    found, problems = gather([run])
    assert not problems
    assert found["return"].tolist() == rows["return"].tolist()
    alone = evaluate_agent(load_agent(run), GAME, [1_000_000], "sampled", seed=3)
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

    def watch(agent, game, levels, mode, **options):
        asked.append((list(levels), mode))
        if len(asked) == stop_at:
            raise KeyboardInterrupt
        return evaluate_agent(agent, game, levels, mode, **options)

    module = sys.modules["gsf.evaluation.evaluate"]
    monkeypatch.setattr(module, "evaluate_agent", watch)
    return asked


def test_a_killed_evaluation_goes_on_where_it_was(tmp_path, monkeypatch):
    config = EvaluateConfig("random", tmp_path / "whole.csv", game="fruitbot", **FEW)
    evaluate(config)
    killed = EvaluateConfig("random", tmp_path / "killed.csv", game="fruitbot", **FEW)
    with monkeypatch.context() as patch:
        played_levels(patch, stop_at=3)
        with pytest.raises(KeyboardInterrupt):
            evaluate(killed)
    assert len(pd.read_csv(tmp_path / "killed.csv")) == 6
    asked = played_levels(monkeypatch)
    evaluate(killed)
    assert asked == [([1_000_000], "greedy"), ([1_000_000], "sampled")]
    whole = (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "killed.csv").read_bytes() == whole
    evaluate(killed)
    assert len(asked) == 2  # all there: nothing is played


def test_asked_to_stop_it_keeps_the_episodes_that_are_over(tmp_path):
    options = {"game": "fruitbot", "modes": ("greedy",), "n_envs": 2, **FEW}
    evaluate(EvaluateConfig("random", tmp_path / "whole.csv", **options))
    whole = pd.read_csv(tmp_path / "whole.csv")
    config = EvaluateConfig("random", tmp_path / "parts.csv", **options)
    at = int(whole["length"][:2].min()) + 1  # the second of the first two levels is under way
    said = stopped(evaluate, config, RandomActor, "act", at)
    assert said == f"1 of 4 episodes are in {tmp_path / 'parts.csv'}"
    evaluate(config)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_more_levels_play_only_the_new_ones(tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    options = {"game": "fruitbot", "splits": ("seen",), "modes": ("greedy",)}
    evaluate(EvaluateConfig("random", out, n_seen=2, **options))
    asked = played_levels(monkeypatch)
    rows = evaluate(EvaluateConfig("random", out, n_seen=4, **options))
    assert asked == [([2, 3], "greedy")]
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
    assert set(player.actor.act(obs, "greedy", uniform)) == {7}
    share = np.bincount(player.actor.act(obs, "sampled", uniform), minlength=15) / 300
    expected = torch.softmax(net.policy.bias.detach(), 0).numpy()
    np.testing.assert_allclose(share, expected, atol=1 / 300)
    config = EvaluateConfig(str(tmp_path), tmp_path / "rows.csv", splits=("seen",), **FEW)
    assert evaluate(config)["level"].tolist() == [40, 41] * 2
    with pytest.raises(UserError, match="coinrun and fruitbot"):
        find_players(str(tmp_path / "policy.pt"), game="coinrun")


def test_what_counts_as_seen_can_be_said_by_a_dataset(run):
    player = find_players("random", dataset=run.parent / "dataset")[0]
    assert (player.game, tuple(player.training)) == (GAME, LEVELS)


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
        (["random", "--game", "maze", "--out", "r.txt"], "ends in .csv or .parquet"),
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
