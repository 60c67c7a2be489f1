import numpy as np
import torch

from gsf.nets.probe import fit_probe


def test_the_probe_finds_what_is_linear_in_the_features():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 8)).astype(np.float32)
    label = (z[:, 3] > 0).astype(np.int64) + (z[:, 3] > 1)
    z = z * 100 + 7  # scale and offset of a feature do not matter
    guess = fit_probe(z[:400], label[:400], 3)(torch.from_numpy(z[400:])).numpy()
    assert (guess == label[400:]).mean() > 0.9
    noise = fit_probe(z[:400], rng.permutation(label[:400]), 3)(torch.from_numpy(z[400:])).numpy()
    assert (noise == label[400:]).mean() < 0.6
