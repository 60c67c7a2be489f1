"""Twelve made-up sites, as one's own data may look: python examples/make_sites.py FOLDER

At every site a robot's camera looks down on the floor around it, in grey: somewhere there is a
bright part to fetch, on whatever floor the site has. An operator drives towards the part, and now
and then elsewhere. FOLDER/site-01 ... site-12 hold one .npz per episode.
"""

import sys
from pathlib import Path

import numpy as np

N_SITES, N_EPISODES, LONGEST = 12, 30, 16
REACH, PIXELS = 3, 4  # the camera sees 3 cells in each direction, each 4 x 4 pixels
SIZE = (2 * REACH + 1) * PIXELS
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # up, down, left, right
CAREFUL = 0.8  # chance that the operator drives towards the part; else any of the four


def floor(site):
    """What a site looks like: its own brightness, stripes and stains."""
    rng = np.random.default_rng([site, 0])
    y, x = np.mgrid[:SIZE, :SIZE]
    stripes = np.sin((x * rng.normal() + y * rng.normal()) / 2)
    return rng.uniform(30, 110) + 20 * stripes + 12 * rng.normal(size=x.shape)


def picture(ground, part):
    """One image, uint8 [28,28]: without a channel axis, as grey cameras give it."""
    image = ground.copy()
    top, left = (part + REACH) * PIXELS
    image[top : top + PIXELS, left : left + PIXELS] = 240
    return image.clip(0, 255).astype(np.uint8)


def towards(part):
    """The moves that bring the robot nearer, as shares of 1."""
    nearer = [abs(part - move).sum() < abs(part).sum() for move in MOVES]
    return np.array(nearer) / sum(nearer)


def episode(site, number):
    rng, ground = np.random.default_rng([site, number + 1]), floor(site)
    part = rng.integers(-REACH, REACH + 1, size=2)
    part[0] = part[0] or REACH  # not under the robot
    obs, action, reward, chance = [picture(ground, part)], [], [], []
    while len(action) < LONGEST and part.any():
        mu = CAREFUL * towards(part) + (1 - CAREFUL) / len(MOVES)
        action.append(rng.choice(len(MOVES), p=mu))
        chance.append(mu[action[-1]])
        part = (part - MOVES[action[-1]]).clip(-REACH, REACH)
        obs.append(picture(ground, part))
        reward.append(float(not part.any()))
    arrived = not part.any()
    return {
        "obs": np.stack(obs),  # [T+1,28,28]: one more than actions
        "action": np.array(action),  # [T]
        "reward": np.array(reward),  # [T]
        "terminated": arrived,
        "truncated": not arrived,  # the operator's time was over
        "behaviour_prob": np.array(chance),  # [T]: how likely the operator was to do just this
    }


def main(folder):
    for site in range(1, N_SITES + 1):
        home = Path(folder) / f"site-{site:02}"
        home.mkdir(parents=True, exist_ok=True)
        for number in range(N_EPISODES):
            np.savez(home / f"episode-{number:02}.npz", **episode(site, number))
    print(f"{N_SITES} sites with {N_EPISODES} episodes each in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
