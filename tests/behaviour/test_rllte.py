"""rllte's PPO on Procgen, built here as its pages describe it: the same logits, and on record."""

import pytest
import torch
from torch import nn

from gsf.behaviour.collect import CollectConfig, collect
from gsf.behaviour.rllte import read_rllte
from gsf.core.errors import UserError
from gsf.data.recording import Recording

PLAY = {"game": "coinrun", "transitions": 32, "n_envs": 4, "n_levels": 4, "device": "cpu"}


class Block(nn.Module):
    """With its ReLU, which works in place: x itself has lost its negatives when it is added."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        identity = x
        out = self.conv2(self.relu(self.conv1(self.relu(x))))
        out += identity
        return out


class Layer(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.main = nn.Sequential(conv, pool, Block(c_out), Block(c_out))

    def forward(self, x):
        return self.main(x)


class Head(nn.Module):
    def __init__(self, name, n):
        super().__init__()
        setattr(self, name, nn.Linear(256, n))


class Agent(nn.Module):
    def __init__(self, exported=False):
        super().__init__()
        layers = [Layer(3, 16), Layer(16, 32), Layer(32, 32), nn.Flatten()]
        self.encoder = nn.Module()
        self.encoder.trunk = nn.Sequential(*layers, nn.Linear(2048, 256), nn.ReLU())
        self.actor = Head("actor", 15)
        if not exported:
            self.critic = Head("critic", 1)

    def forward(self, obs):  # [n,C,H,W], 0..255
        z = self.encoder.trunk(obs / 255.0)
        return self.actor.actor(z), self.critic.critic(z)[:, 0]


@pytest.fixture
def agent():
    torch.manual_seed(3)
    agent = Agent()
    for weight in agent.parameters():  # large enough that every layer matters
        nn.init.normal_(weight, std=0.1)
    return agent


def test_it_scores_actions_as_rllte_does(agent, tmp_path):
    torch.save(agent.state_dict(), tmp_path / "pretrained.pth")
    policy = read_rllte(tmp_path / "pretrained.pth", "coinrun", "easy", "cpu")
    obs = torch.randint(0, 256, (8, 64, 64, 3), dtype=torch.uint8)
    with torch.no_grad():
        logits, value = agent(obs.permute(0, 3, 1, 2))
        own, own_value = policy.net(obs)
    scale = logits.abs().max()
    assert (own - logits).abs().max() < 1e-6 * scale
    assert (own_value - value).abs().max() < 1e-6 * value.abs().max()
    assert policy.act_probs(obs.numpy()).shape == (8, 15)


def test_it_is_recorded_whether_exported_or_not(agent, tmp_path):
    torch.save(agent.state_dict(), tmp_path / "whole.pth")
    exported = {k: x for k, x in agent.state_dict().items() if not k.startswith("critic")}
    torch.save(exported, tmp_path / "agent.pth")
    takes = []
    for name in ("whole", "agent"):
        config = CollectConfig(**PLAY, policy=tmp_path / f"{name}.pth", out=tmp_path / name)
        takes.append(Recording.load(collect(config)).takes[0])
    assert (takes[0].actions == takes[1].actions).all()
    assert takes[0].policy["by"] == "rllte"


def test_what_it_would_take_to_unpickle_is_refused(agent, tmp_path):
    torch.save(agent, tmp_path / "agent_1000.pth")
    config = CollectConfig(**PLAY, policy=tmp_path / "agent_1000.pth", out=tmp_path / "out")
    with pytest.raises(UserError, match="holds pickled objects, which gsf does not run"):
        collect(config)
    assert not (tmp_path / "out").exists()


def test_other_networks_and_other_files_are_named(agent, tmp_path):
    small = {k: x[:7] if k.startswith("actor") else x for k, x in agent.state_dict().items()}
    torch.save(small, tmp_path / "seven.pth")
    with pytest.raises(UserError, match="of something else than is asked of it"):
        read_rllte(tmp_path / "seven.pth", "coinrun", "easy", "cpu")
    torch.save({"encoder.weight": torch.zeros(3)}, tmp_path / "other.pth")
    assert read_rllte(tmp_path / "other.pth", "coinrun", "easy", "cpu") is None
    with pytest.raises(UserError, match="damaged"):
        collect(CollectConfig(**PLAY, policy=tmp_path / "other.pth", out=tmp_path / "out"))
    (tmp_path / "text").write_text("no weights")
    assert read_rllte(tmp_path / "text", "coinrun", "easy", "cpu") is None
