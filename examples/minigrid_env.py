"""MiniGrid for gsf: what `--env examples/minigrid_env.py:make` plays, and data of it by Minari.

pip install 'gsf-rl[examples,minari]'
python examples/minigrid_env.py
"""

from collections import deque

import gymnasium
import minari
import numpy as np
from minigrid.wrappers import ImgObsWrapper, RGBImgObsWrapper

GAME = "MiniGrid-SimpleCrossingS9N1-v0"  # find the gap in a wall, then the goal
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # of the directions an agent may face
LEFT, RIGHT, FORWARD = range(3)


class Walking(gymnasium.Wrapper):
    """MiniGrid's other four actions do nothing here; an episode that earns something is won."""

    action_space = gymnasium.spaces.Discrete(3)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info | {"success": reward > 0}


def make(level: int) -> gymnasium.Env:
    """The whole grid from above, 54 x 54 pixels; gsf resets it with seed=level."""
    return Walking(ImgObsWrapper(RGBImgObsWrapper(gymnasium.make(GAME), tile_size=6)))


def plan(env: gymnasium.Env) -> int:
    """The first action of a shortest way to the goal."""
    grid = env.unwrapped
    start = (*map(int, grid.agent_pos), int(grid.agent_dir))
    first, waiting = {start: None}, deque([start])
    while waiting:
        here = waiting.popleft()
        x, y, facing = here
        cell = grid.grid.get(x, y)
        if cell is not None and cell.type == "goal":
            return first[here]
        dx, dy = MOVES[facing]
        ahead = grid.grid.get(x + dx, y + dy)
        free = ahead is None or ahead.can_overlap()
        moves = {LEFT: (x, y, (facing - 1) % 4), RIGHT: (x, y, (facing + 1) % 4)}
        if free:
            moves[FORWARD] = (x + dx, y + dy, facing)
        for action, there in moves.items():
            if there not in first:
                first[there] = action if first[here] is None else first[here]
                waiting.append(there)
    raise RuntimeError("no way to the goal")


def collect(name: str, levels: range, episodes: int, epsilon: float) -> None:
    """`episodes` on each level, by the planner, with a random action now and then."""
    rng = np.random.default_rng(0)
    env = minari.DataCollector(make(0))
    for level in levels:
        for _ in range(episodes):
            env.reset(seed=level)
            ended = False
            while not ended:
                action = rng.integers(3) if rng.random() < epsilon else plan(env)
                _, _, terminated, truncated, _ = env.step(int(action))
                ended = terminated or truncated
    env.create_dataset(name, algorithm_name="shortest way, epsilon-greedy")
    env.close()


if __name__ == "__main__":
    collect("gsf/crossing-v0", range(200), episodes=5, epsilon=0.2)
