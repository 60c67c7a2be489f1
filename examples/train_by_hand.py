"""GSF by hand, on gsf's own parts: from a recording to returns on levels that are not in it.

    python examples/train_by_hand.py

What `gsf materialise`, `fit`, `label`, `train` and `evaluate` do, without files between them. In a
minute it shows how it is done; for agents that are good at it take more transitions and steps.
"""

from pathlib import Path

import numpy as np
import torch

import gsf
from gsf.equations import contrastive_cce, cql_loss, quantile_labels, td_target
from gsf.gvf.monte_carlo import monte_carlo
from gsf.learn.learner import reward_scale
from gsf.nets.acting import sample, tempered
from gsf.nets.augment import random_crop
from gsf.nets.encoders import Encoder
from gsf.nets.heads import Critic, Projection
from gsf.nets.runtime import frozen_copy, seeded, update_target

GAMMA, N_BINS, TAU, ALPHA, RATE = 0.99, 7, 0.5, 1.0, 0.005  # as in docs/methods.md


def train(dataset, steps=300, batch=64, seed=0):
    """An encoder and critics on what it sees."""
    rewards = dataset.reward[:, None].astype(float)
    future = monte_carlo(rewards, dataset.episode, dataset.terminated, GAMMA)[:, 0]  # the GVF
    label = torch.from_numpy(quantile_labels(future, dataset.level, N_BINS))
    rng, scale = np.random.default_rng(seed), reward_scale(dataset)
    with seeded(rng):
        encoder, q = Encoder(dataset.obs_shape, "impala_small"), Critic(dataset.n_actions)
        h, w = Projection(256, 256), torch.nn.Linear(256, N_BINS, bias=False)
    target_encoder, target_q = frozen_copy(encoder), frozen_copy(q)
    weights = [x for net in (encoder, q, h, w) for x in net.parameters()]
    adam, drawing = torch.optim.Adam(weights, 3e-4, fused=True), rng.spawn(1)[0]
    for step in range(1, steps + 1):
        b = dataset.sample(batch, drawing)
        obs, next_obs = random_crop(b.obs, rng), random_crop(b.next_obs, rng)
        with torch.no_grad():  # double Q-learning: q chooses the next action, target_q judges it
            next_q = torch.minimum(*q(encoder(next_obs)))
            judged = torch.minimum(*target_q(target_encoder(next_obs)))
            y = td_target((b.reward / scale).clamp(-10, 10), b.terminated, next_q, judged, GAMMA)
        z, known = encoder(obs), b.has_next | b.terminated
        cql = sum(cql_loss(critic, b.action, y, ALPHA, known)[0] for critic in q(z))
        same_future = contrastive_cce(w(h(z)), label[b.index], TAU)
        adam.zero_grad()
        (cql + same_future).backward()
        adam.step()
        update_target(target_encoder, encoder, RATE)
        update_target(target_q, q, RATE)
        if step % 50 == 0:
            print(f"step {step}: cql {cql.item():.3f}, gsf {same_future.item():.3f}")
    return encoder, q


@torch.no_grad()
def play(encoder, q, dataset, levels, seed=0):
    """Mean return of one episode on each level, actions drawn from softmax(Q)."""
    env = gsf.make_env(dataset.name, levels=levels, n_envs=len(levels), seed=seed)
    (obs, _), rng = env.reset(), np.random.default_rng(seed)
    returns, playing = np.zeros(len(levels)), np.ones(len(levels), bool)
    while playing.any():
        scores = torch.minimum(*q(encoder(torch.from_numpy(obs)))).numpy()
        chosen = sample(tempered(scores, 1.0), rng.random(len(levels)))
        obs, reward, ended, cut, _ = env.step(np.array(dataset.manifest["actions"])[chosen])
        returns += reward * playing
        playing &= ~(ended | cut)
    env.close()
    return returns.mean()


if __name__ == "__main__":
    recording = {"recording": "coinrun", "transitions": 20_000}
    path = gsf.materialise(gsf.MaterialiseConfig(**recording, out=Path("by-hand/dataset")))
    dataset = gsf.Dataset.open(path)
    agent = train(dataset)
    print(f"seen levels:   {play(*agent, dataset, dataset.levels[:25]):.2f}")
    print(f"unseen levels: {play(*agent, dataset, list(range(1_000_000, 1_000_025))):.2f}")
