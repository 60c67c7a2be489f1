"""Hand-computed expectations for every formula; properties for labels and PopArt."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsf import equations as eq

nan = float("nan")
LIBRARIES = {"numpy": np.array, "torch": lambda x: torch.from_numpy(np.array(x))}


@pytest.fixture(params=LIBRARIES)
def array(request):
    """Makes the arrays of a test: every formula is tried with numpy and with torch."""
    return LIBRARIES[request.param]


def check(result, expected, array, tolerance=1e-12):
    """The result is of the library that went in, with the expected values and shape."""
    assert type(result) is type(array([0.0]))
    assert tuple(result.shape) == np.shape(expected)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


# Gradients


def _embedding():
    return torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: eq.cql_loss(x, torch.tensor([0, 2, 1, 1, 0]), torch.arange(5.0).double(), 0.7)[0],
        lambda x: eq.bc_loss(x, torch.tensor([0, 2, 1, 1, 0]))[0],
        lambda x: eq.td_loss(x[:, 0], x[:, 1], torch.tensor([1, 1, 0, 1, 1])),
        lambda x: eq.iql_value_loss(x[:, 0], x[:, 1], 0.8),
        lambda x: eq.iql_policy_loss(
            x, torch.tensor([0, 2, 1, 1, 0]), torch.arange(5.0).double() / 5, 2.0, 3.0
        )[0],
        lambda x: eq.contrastive_cce(x, torch.tensor([0, 2, -1, 1, 0]), 0.5),
        lambda x: eq.contrastive_infonce(x, torch.tensor([0, 1, 0, 1, -1]), 0.5),
        lambda x: eq.rank_contrast(x, torch.tensor([0.1, 0.2, 0.5, 0.9, nan]).double(), 0.5, 0.1),
    ],
    ids=["cql", "bc", "td", "iql_value", "iql_policy", "cce", "infonce", "rank"],
)
def test_gradients_are_those_of_finite_differences(loss):
    """Nothing that a loss is to train is cut from it."""
    assert torch.autograd.gradcheck(loss, _embedding().requires_grad_())


# Torch or numpy in, the same out; shapes


def test_wrong_shapes_say_what_was_expected():
    with pytest.raises(ValueError, match=r"gvf_target: terminated has shape \[2\], expected \[n\]"):
        eq.gvf_target(np.ones(3), np.ones(3), np.ones(2), 0.9)
    with pytest.raises(ValueError, match=r"next_value has shape \[3, 1\]"):
        eq.gvf_target(np.ones(3), np.ones((3, 1)), np.ones(3), 0.9)
    with pytest.raises(ValueError, match=r"cql_loss: q has shape \[4\], expected \[n A\]"):
        eq.cql_loss(torch.ones(4), torch.ones(4), torch.ones(4), 1.0)
    with pytest.raises(ValueError, match=r"label has shape \[2\], expected \[n ...\] with"):
        eq.contrastive_cce(torch.ones(2, 3, 7), torch.zeros(2), 0.5)
    with pytest.raises(ValueError, match=r"policy_similarity_metric: cost has shape \[\]"):
        eq.policy_similarity_metric(np.array(1.0), 0.9)


def test_read_only_and_reversed_arrays_are_fine():
    c = np.array([1.0, 2.0])
    c.flags.writeable = False
    check(eq.gvf_return(c[::-1], 0.5), [2.5, 1.0], np.array)


def test_torch_wins_over_numpy_and_dtype_stays():
    y = eq.gvf_target(torch.ones(2), np.ones(2, np.float32), np.array([False, True]), 0.5)
    assert y.dtype == torch.float32
    assert y.tolist() == [1.5, 1.0]


# Motivating example


def test_total_variation(array):
    # 1/2 (|.5-.1| + |.5-.2| + |0-.7|) = 1/2 (.4 + .3 + .7)
    check(eq.total_variation(array([0.5, 0.5, 0.0]), array([0.1, 0.2, 0.7])), 0.7, array)


def test_normalised_squared_error(array):
    # (1 + 4) / (1/2 (1 + 4 + 4 + 16)) = 5 / 12.5; second row is all 0
    v1, v2 = array([[1.0, 2.0], [0.0, 0.0]]), array([[2.0, 4.0], [0.0, 0.0]])
    check(eq.normalised_squared_error(v1, v2), [0.4, 0.0], array)


# GVFs


def test_gvf_return(array):
    # G_3 = 8, G_2 = 4 + 8/2 = 8, G_1 = 2 + 8/2 = 6, G_0 = 1 + 6/2 = 4
    check(eq.gvf_return(array([1.0, 2.0, 4.0, 8.0]), 0.5), [4.0, 6.0, 8.0, 8.0], array)
    # by component; integers become floats; c starts at k = 0
    check(eq.gvf_return(array([[1, 0], [0, 2]]), 0.9), [[1.0, 1.8], [0.0, 2.0]], array)
    check(eq.gvf_return(array([[3.0, 5.0]]), 0.9), [[3.0, 5.0]], array)


def test_gvf_return_of_many_episodes_in_a_row(array):
    # [1, 2] then [4] then [8, 16]: 1 + 2/2, 2, 4, 8 + 16/2, 16
    ended = array([False, True, True, False, True])
    result = eq.gvf_return(array([1.0, 2.0, 4.0, 8.0, 16.0]), 0.5, ended)
    check(result, [2.0, 2.0, 4.0, 16.0, 16.0], array)
    both = eq.gvf_return(array([[1.0, 0.0], [2.0, 1.0], [4.0, 4.0]]), 0.5, array([0, 1, 1]))
    check(both, [[2.0, 0.5], [2.0, 1.0], [4.0, 4.0]], array)


def test_gvf_return_is_the_recursion():
    rng = np.random.default_rng(0)
    c, ended = rng.normal(size=(203, 3)), rng.random(203) < 0.03
    expected, following = np.zeros_like(c), np.zeros(3)
    for t in reversed(range(203)):
        following = expected[t] = c[t] + 0.97 * following * (not ended[t])
    check(eq.gvf_return(c, 0.97, ended), expected, np.array)


def test_gvf_return_has_a_gradient():
    c = torch.ones(3, requires_grad=True)
    eq.gvf_return(c, 0.5)[0].backward()
    assert c.grad.tolist() == [1.0, 0.5, 0.25]


def test_gvf_sum(array):
    # 1 + .5 * 2 + .25 * 4; and 8 + .5 * 4 without the step that is not taken
    taken = array([[True, True, True], [True, True, False]])
    total = eq.gvf_sum(array([[1.0, 2.0, 4.0], [8.0, 4.0, 100.0]]), taken, 0.5)
    check(total, [3.0, 10.0], array)
    check(eq.gvf_sum(array([[[1.0, 0.0], [0.0, 2.0]]]), taken[:1, :2], 0.5), [[1.0, 1.0]], array)


def test_gvf_target(array):
    # 1 + .9 * 10, and 2 alone where terminated
    y = eq.gvf_target(array([1.0, 2.0]), array([10.0, 10.0]), array([False, True]), 0.9)
    check(y, [10.0, 2.0], array)
    y = eq.gvf_target(array([[1.0, 0.0]] * 2), array([[10.0, 20.0]] * 2), array([1.0, 0.0]), 0.9)
    check(y, [[1.0, 0.0], [10.0, 18.0]], array)
    # After one step and after two: 1 + .5 * 10 and 1 + .25 * 10
    y = eq.gvf_target(array([1.0] * 2), array([10.0] * 2), array([0.0] * 2), array([0.5, 0.25]))
    check(y, [6.0, 3.5], array)


# Distances, quantiles, labels


def test_gvf_distance(array):
    check(eq.gvf_distance(array([1.0, -2.0]), array([3.0, -5.0])), [2.0, 3.0], array)


def test_empirical_cdf_is_strict(array):
    # of 1 2 2 5, strictly below 2: one of four; below 2.5: three; below 5: three; below 6: all
    values = array([5.0, 2.0, 1.0, 2.0])
    check(
        eq.empirical_cdf(values, array([1.0, 2.0, 2.5, 5.0, 6.0])), [0, 0.25, 0.75, 0.75, 1], array
    )


def test_empirical_quantile(array):
    # of 10 20 30 40: p <= F(g) first at the ceil(4p)-th value; p = 0 at the first
    result = eq.empirical_quantile(array([40.0, 10.0, 30.0, 20.0]), array([0, 0.2, 0.25, 0.26, 1]))
    check(result, [10, 10, 10, 20, 40], array)
    with pytest.raises(ValueError, match="p must lie in"):
        eq.empirical_quantile(array([1.0]), array([1.1]))


@pytest.mark.parametrize("n_bins", range(1, 60))
def test_quantiles_at_k_over_n_bins_do_not_round_up(n_bins):
    values = np.arange(1, 3 * n_bins + 1)
    expected = [1, *(3 * np.arange(1, n_bins + 1))]
    assert eq.bin_edges(values, n_bins).tolist() == expected


def test_bins_and_labels_from_edges(array):
    # n = 6, K = 3: edges are the 1st (p = 0), 2nd, 4th and 6th value
    values = array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    edges = eq.bin_edges(values, 3)
    check(edges, [1, 2, 4, 6], array)
    check(eq.in_bin(values, edges, 1), [True, False, True, False, False, True], array)
    # 2 is in bins 0 and 1, 4 in bins 1 and 2: the higher one; 6 only in 2
    check(eq.labels_from_edges(values, edges), [1, 0, 1, 2, 2, 2], array)
    check(eq.labels_from_edges(array([0.9, 6.1, nan, 1.0]), edges), [-1, -1, -1, 0], array)


def test_labels_from_edges_is_the_largest_bin_that_holds_the_value():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 8, 100)  # many ties: several edges coincide
    edges = eq.bin_edges(values, 7)
    expected = [max(k for k in range(7) if eq.in_bin(v, edges, k)) for v in values]
    assert eq.labels_from_edges(values, edges).tolist() == expected


def test_quantile_labels(array):
    # level 0: 1 2 3 9 have ranks 0 1 2 3, K = 2: floor(2 r / 4) = 0 0 1 1
    # level 1: 5 7 7 7 have ranks 0 2 2 2 (middle of 1 2 3): 0 1 1 1
    values = array([9.0, 7.0, 1.0, 2.0, 5.0, 7.0, 3.0, 7.0])
    level = array([0, 1, 0, 0, 1, 1, 0, 1])
    check(eq.quantile_labels(values, level, 2), [1, 1, 0, 0, 0, 1, 1, 1], array)
    check(
        eq.within_level_rank(values, level), [0.75, 0.5, 0, 0.25, 0, 0.5, 0.5, 0.5], array
    )  # ranks / 4


def test_quantile_labels_half_ranks(array):
    # 1 1 2 2: middle ranks 0.5 and 2.5; K = 8: floor(8 * .5 / 4) = 1, floor(8 * 2.5 / 4) = 5
    result = eq.quantile_labels(array([1.0, 2.0, 1.0, 2.0]), array([3, 3, 3, 3]), 8)
    check(result, [1, 5, 1, 5], array)
    assert "int64" in str(result.dtype)


def test_unknown_values_and_flat_levels_are_minus_one(array):
    # level 0: NaN is out, 1 2 remain: 0 1 with K = 2; level 1 is constant; level 2 is alone
    values = array([2.0, nan, 1.0, 4.0, 4.0, nan, 8.0])
    level = array([0, 0, 0, 1, 1, 1, 2])
    check(eq.quantile_labels(values, level, 2), [1, -1, 0, -1, -1, -1, -1], array)
    check(eq.within_level_rank(values, level), [0.5, nan, 0, nan, nan, nan, nan], array)


def test_labels_are_by_component(array):
    values = array([[1.0, 5.0], [2.0, 5.0], [3.0, 1.0], [4.0, nan]])
    level = array([0, 0, 0, 0])
    # second column: 5 5 1 have middle ranks 1.5 1.5 0 of n = 3: floor(2 * 1.5 / 3) = 1
    check(eq.quantile_labels(values, level, 2), [[0, 1], [0, 1], [1, 0], [1, -1]], array)


def test_labels_of_nothing(array):
    empty = array(np.zeros((0, 2)))
    check(eq.quantile_labels(empty, array(np.zeros(0, int)), 7), np.zeros((0, 2)), array)
    with pytest.raises(ValueError, match="n_bins is 0"):
        eq.quantile_labels(empty, array(np.zeros(0, int)), 0)


samples = st.lists(
    st.tuples(st.integers(-5, 5), st.integers(0, 3)), min_size=1, max_size=60
)  # (value, level): few values, so that ties are common


@given(samples, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_labels_match_a_loop_and_share_ties(pairs, n_bins):
    values, level = np.array(pairs, dtype=float).T
    labels = eq.quantile_labels(values, level, n_bins)
    for v, i, label in zip(values, level, labels, strict=True):
        mine = sorted(values[level == i])
        positions = [r for r, w in enumerate(mine) if w == v]
        expected = (positions[0] + positions[-1]) * n_bins // (2 * len(mine))
        assert label == (expected if len(set(mine)) > 1 else -1)


@given(samples, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_labels_ignore_any_increasing_map_per_level(pairs, n_bins):
    values, level = np.array(pairs, dtype=float).T
    mapped = np.where(level == 0, values**3 - 7, np.exp(values) * (1 + level))
    before = eq.quantile_labels(values, level, n_bins)
    assert (eq.quantile_labels(mapped, level, n_bins) == before).all()
    np.testing.assert_array_equal(
        eq.within_level_rank(mapped, level), eq.within_level_rank(values, level)
    )


@given(st.integers(2, 9), st.integers(1, 8), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_bins_have_equal_sizes_without_ties(n_bins, per_bin, seed):
    n, rng = n_bins * per_bin, np.random.default_rng(seed)
    values = np.concatenate([rng.permutation(n) * 0.1, rng.permutation(n) * 100.0])
    level = np.repeat([0, 1], n)
    labels = eq.quantile_labels(values, level, n_bins)
    for i in (0, 1):
        assert np.bincount(labels[level == i]).tolist() == [per_bin] * n_bins
    ranks = eq.within_level_rank(values, level)
    assert ranks.min() >= 0
    assert ranks.max() < 1


def test_no_rounding_shifts_a_label():
    # rank 29 of 50 with K = 50 is bin 29; in floats 29 / 50 * 50 = 28.999999999999996
    assert math.floor(29 / 50 * 50) == 28
    labels = eq.quantile_labels(np.arange(50), np.zeros(50, int), 50)
    assert labels.tolist() == list(range(50))


# Losses


def test_contrastive_cce(array):
    # tau = 1/2 doubles the logits. Row 0: softmax(2 log 3, 0) = (.9, .1), label 0; row 1: -1;
    # row 2: (.5, .5), label 1.  mean(-log .9, -log .5)
    logits = array([[math.log(3), 0.0], [5.0, 6.0], [1.0, 1.0]])
    expected = (-math.log(0.9) - math.log(0.5)) / 2
    check(eq.contrastive_cce(logits, array([0, -1, 1]), 0.5), expected, array)
    by_component = logits.reshape(1, 3, 2)
    check(eq.contrastive_cce(by_component, array([[0, -1, 1]]), 0.5), expected, array)


@pytest.mark.parametrize("loss", [eq.contrastive_cce, eq.contrastive_infonce])
def test_without_labels_the_loss_is_zero_with_a_graph(loss):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    value = loss(x, torch.full((4,), -1), 0.5)
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()


def test_td_target_is_double_dqn(array):
    next_q, next_q_target = array([[1.0, 2.0], [4.0, 3.0]]), array([[10.0, 20.0], [30.0, 40.0]])
    reward, terminated = array([1.0, 1.0]), array([False, False])
    # a* = 1, 0: 1 + .5 * 20, 1 + .5 * 30
    check(eq.td_target(reward, terminated, next_q, next_q_target, 0.5), [11.0, 16.0], array)
    # the paper's max: 1 + .5 * 20, 1 + .5 * 40
    literal = eq.td_target(reward, terminated, next_q_target, next_q_target, 0.5)
    check(literal, [11.0, 21.0], array)
    ended = eq.td_target(reward, array([True, False]), next_q, next_q_target, 0.5)
    check(ended, [1.0, 16.0], array)


def test_cql_loss(array):
    # chosen = log 3, 0; td = mean(1, 4) = 2.5; LSE = log 4, log 2
    # conservative = mean(log 4 - log 3, log 2)
    q = array([[math.log(3), 0.0], [0.0, 0.0]])
    action, target = array([0, 1]), array([math.log(3) + 1, -2.0])
    conservative = (math.log(4 / 3) + math.log(2)) / 2
    loss, info = eq.cql_loss(q, action, target, 0.1)
    check(loss, 2.5 + 0.1 * conservative, array)
    check(info["td"], 2.5, array)
    check(info["conservative"], conservative, array)
    check(info["q"], math.log(3) / 2, array)
    # only row 0 has a target; the other one may be anything
    loss, info = eq.cql_loss(q, action, array([math.log(3) + 1, nan]), 0.1, mask=array([1.0, 0.0]))
    check(loss, 1.0 + 0.1 * conservative, array)
    loss, _ = eq.cql_loss(q, action, array([nan, nan]), 1.0, mask=array([0, 0]))
    check(loss, conservative, array)


def test_cql_with_alpha_0_is_mean_squared_error():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(6, 3, generator=generator, requires_grad=True)
    action, y = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(6, generator=generator)
    loss, info = eq.cql_loss(q, action, y, 0.0)
    torch.testing.assert_close(loss, torch.nn.functional.mse_loss(q[torch.arange(6), action], y))
    assert not any(x.requires_grad for x in info.values())


def test_a_missing_target_sends_no_gradient():
    q = torch.zeros(2, 2, requires_grad=True)
    loss, _ = eq.cql_loss(
        q, torch.tensor([0, 1]), torch.tensor([1.0, nan]), 0.0, mask=torch.tensor([1, 0])
    )
    loss.backward()
    assert q.grad.tolist() == [[-2.0, 0.0], [0.0, 0.0]]  # d/dq (q - 1)^2 = 2 (0 - 1)


def test_td_loss(array):
    q, target = array([1.0, 2.0, 5.0]), array([2.0, 4.0, nan])
    check(eq.td_loss(q, target, array([True, True, False])), (1 + 4) / 2, array)
    check(eq.td_loss(q[:2], target[:2]), (1 + 4) / 2, array)
    check(eq.td_loss(q, target, array([False] * 3)), 0.0, array)


def test_bc_loss(array):
    # softmax (.75, .25) and (.5, .5): mean(-log .25, -log .5); argmax 0 is wrong, then right
    loss, info = eq.bc_loss(array([[math.log(3), 0.0], [0.0, 0.0]]), array([1, 0]))
    check(loss, math.log(8) / 2, array)
    check(info["accuracy"], 0.5, array)


# Implicit Q-learning


def test_expectile_loss(array):
    # .8 * 2^2, .2 * 3^2, 0
    check(eq.expectile_loss(array([2.0, -3.0, 0.0]), 0.8), [3.2, 1.8, 0.0], array)
    check(eq.expectile_loss(array([[2.0], [-3.0]]), 0.5), [[2.0], [4.5]], array)


def test_iql_value_loss(array):
    # Q~ - V = 2, -3: mean(.8 * 4, .2 * 9)
    check(eq.iql_value_loss(array([1.0, 3.0]), array([3.0, 0.0]), 0.8), 2.5, array)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 1.0), (0.75, 1.5), (0.9, 1.8)])
def test_the_value_is_the_expectile_of_q(expectile, expected):
    # Of 0 and 2, each as likely: e (2 - v) = (1 - e) v, so v = 2 e.
    v = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.0, 2.0], dtype=torch.float64)
    for _ in range(200):
        loss = eq.iql_value_loss(v.expand(2), q, expectile)
        [slope] = torch.autograd.grad(loss, v)
        v = (v - 0.5 * slope).detach().requires_grad_()
    assert v.item() == pytest.approx(expected)


def test_iql_policy_loss(array):
    # -log softmax = log 4, log 2; weights e^{2 log 3 / 2} = 3 and e^{2 * 10} cut to 5
    logits, action = array([[math.log(3), 0.0], [0.0, 0.0]]), array([1, 0])
    advantage = array([math.log(3) / 2, 10.0])
    loss, info = eq.iql_policy_loss(logits, action, advantage, 2.0, 5.0)
    check(loss, (3 * math.log(4) + 5 * math.log(2)) / 2, array)
    check(info["weight"], 4.0, array)
    check(info["advantage"], (math.log(3) / 2 + 10) / 2, array)


def test_iql_without_beta_is_behaviour_cloning_and_values_take_no_gradient_from_it():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=generator, requires_grad=True)
    action = torch.tensor([0, 1, 2, 0, 1, 2])
    advantage = torch.full((6,), 1e9, requires_grad=True)
    loss, _ = eq.iql_policy_loss(logits, action, advantage, 0.0, 100.0)
    torch.testing.assert_close(loss, eq.bc_loss(logits, action)[0])
    loss, _ = eq.iql_policy_loss(logits, action, advantage, 1.0, 100.0)
    assert loss.isfinite()
    loss.backward()
    assert advantage.grad is None


# Theorem 1


def test_theorem1_terms(array):
    # n = 4, eps = 2: 2 exp(-2 * 4 * 4 / 4) = 2 e^-8; one bin is as wide as the redrawn range,
    # which is 0 or 3 of (0 3): > 2 unless all four draws are equal, P = 1 - 2 / 16
    values = array([0.0, 0.0, 3.0, 3.0])
    terms = eq.theorem1_terms(values, 1, 2.0, np.random.default_rng(0), delta=0.3, n_boot=2000)
    assert terms["estimation"] == pytest.approx(2 * math.exp(-8))
    assert terms["width"] == pytest.approx(7 / 8, abs=0.03)
    assert terms["delta"] == 0.3
    never = eq.theorem1_terms(values, 1, 3.0, np.random.default_rng(0), n_boot=20)
    assert never["width"] == 0


def test_suggest_bins_weighs_width_against_flips(array):
    values, candidates = np.random.default_rng(0).normal(size=300), [1, 2, 7, 150]
    best, table = eq.suggest_bins(array(values), candidates, np.random.default_rng(1))
    again, _ = eq.suggest_bins(array(values), candidates, np.random.default_rng(1))
    assert best == again == 7
    for n_bins, terms in table.items():
        assert terms["width"] == pytest.approx(1 / n_bins)
    flips = [table[k]["flip"] for k in candidates]
    assert flips[0] == 0
    assert flips == sorted(flips)
    # a quantile p of n draws moves by sqrt(p (1-p) / n) = .029 ranks / n; E|N(0,1)| = .8
    assert flips[1] == pytest.approx(0.8 * 0.5 / math.sqrt(300), rel=0.3)
    with pytest.raises(ValueError, match="two distinct"):
        eq.suggest_bins(array([1.0, 1.0]), candidates, np.random.default_rng(1))


# PopArt


def test_popart_statistics(array):
    # level 1 has 2 and 4: mean 3, mean square 10; level 0 is not in the batch
    state = array([[1.0], [0.0]]), array([[2.0], [0.0]]), array([0.5, 0.0])
    batch = array([[2.0], [4.0]]), array([1, 1])
    mean, mean_sq, debias = eq.popart_statistics(*state, *batch, rate=0.1)
    check(mean, [[1.0], [0.3]], array)
    check(mean_sq, [[2.0], [1.0]], array)
    check(debias, [0.5, 0.1], array)
    # level 0: 1/.5 = 2, 2/.5 - 4 = 0 -> 1e-4; level 1: .3/.1 = 3, 1/.1 - 9 = 1
    mu, sigma = eq.popart_mean_std(mean, mean_sq, debias)
    check(mu, [[2.0], [3.0]], array)
    check(sigma, [[1e-4], [1.0]], array)
    # again: mean .9 * .3 + .1 * 3 = .57, debias .9 * .1 + .1 = .19: mu stays 3
    mean, mean_sq, debias = eq.popart_statistics(mean, mean_sq, debias, *batch, rate=0.1)
    check(mean, [[1.0], [0.57]], array)
    check(eq.popart_mean_std(mean, mean_sq, debias)[0], [[2.0], [3.0]], array)


def test_popart_limits(array):
    # never seen: 0, 1; sigma = 1e7 is cut to 1e6
    mu, sigma = eq.popart_mean_std(array([[0.0], [0.0]]), array([[0.0], [1e14]]), array([0.0, 1.0]))
    check(mu, [[0.0], [0.0]], array)
    check(sigma, [[1.0], [1e6]], array)


def test_popart_rescale(array):
    # s = 2 -> 4, mu = 1 -> 3: w' = 3 * 2 / 4, b' = (2 * 5 + 1 - 3) / 4
    old, new = (array([1.0]), array([2.0])), (array([3.0]), array([4.0]))
    weight, bias = eq.popart_rescale(array([[3.0]]), array([5.0]), *old, *new)
    check(weight, [[1.5]], array)
    check(bias, [2.0], array)


positive = st.floats(1e-4, 1e6)
shift = st.floats(-1e3, 1e3)


@given(shift, positive, shift, positive, st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_popart_rescale_keeps_the_output(old_mean, old_std, mean, std, seed):
    rng = np.random.default_rng(seed)
    weight, bias, x = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2)), rng.normal(size=3)
    old, new = [[np.full((4, 2), s) for s in pair] for pair in ((old_mean, old_std), (mean, std))]
    before = eq.popart_denormalise(weight @ x + bias, *old)
    weight, bias = eq.popart_rescale(weight, bias, *old, *new)
    after = eq.popart_denormalise(weight @ x + bias, *new)
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9 * (1e3 + old_std))


def test_popart_normalise(array):
    y, mean, std = array([7.0, 1.0]), array([3.0, 1.0]), array([2.0, 5.0])
    check(eq.popart_normalise(y, mean, std), [2.0, 0.0], array)
    check(eq.popart_denormalise(array([2.0, 0.0]), mean, std), [7.0, 1.0], array)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-50, 50)), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_popart_of_one_batch_is_that_batch(pairs):
    """Debiased: after one update of any rate, mu and sigma are the batch's own, by level."""
    level = np.array([i for i, _ in pairs])
    values = np.array([[y] for _, y in pairs])
    zeros = np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3)
    mu, sigma = eq.popart_mean_std(*eq.popart_statistics(*zeros, values, level))
    for i in range(3):
        mine = values[level == i]
        expected = (mine.mean(), max(mine.std(), 1e-4)) if len(mine) else (0.0, 1.0)
        np.testing.assert_allclose([mu[i, 0], sigma[i, 0]], expected, rtol=1e-6, atol=1e-5)


# Appendix


def test_epsilon_schedule(array):
    check(eq.epsilon_schedule(array([0.0, 50.0, 100.0]), 100), [0.1, 0.05, 0.0], array)
    assert eq.epsilon_schedule(25, 100) == pytest.approx(0.075)
    # 0.1 - 3.96e-9 * 5e6 = 0.1 - 0.0198
    assert eq.epsilon_schedule(5_000_000, 5_000_000, literal=True) == pytest.approx(0.0802)


def test_ema(array):
    # .1 * 10 + .9 * 1, .1 * 0 + .9 * 2
    check(eq.ema(array([1.0, 2.0]), array([10.0, 0.0]), 0.1), [1.9, 1.8], array)


def test_theorem2_bound(array):
    # gamma = 1/2, n = 0, 1: 1.5 + .5, 1.5 + .25; upper adds .25 / .5 = .5
    lower, upper = eq.theorem2_bound(array([0, 1]), 0.5)
    check(lower, [2.0, 1.75], array)
    check(upper, [2.5, 2.25], array)
    lower, upper = eq.theorem2_bound(array([0, 1]), 0.5, form="proof")
    check(lower, [1.0, 1.25], array)
    check(upper, [1.5, 1.75], array)
    with pytest.raises(ValueError, match="form is 'other'"):
        eq.theorem2_bound(array([1]), 0.5, form="other")


def test_theorem2_proof_form_holds_on_a_tabular_chain():
    """G = sum_t gamma^t P~^t, P~ = n(o, o') / (n(o) + 1), counted on a random walk of 6 states."""
    rng, state, counts = np.random.default_rng(0), 0, np.zeros((6, 6))
    for step in rng.choice([-1, 1], 80):
        following = min(max(state + step, 0), 5)
        counts[state, following] += 1
        state = following
    visits = counts.sum(1)
    norm = np.linalg.inv(np.eye(6) - 0.9 * counts / (visits + 1)[:, None]).sum(1)
    lower, upper = eq.theorem2_bound(visits, 0.9, form="proof")
    assert (lower <= norm + 1e-12).all()
    assert (norm <= upper + 1e-12).all()
    assert np.corrcoef(lower, visits)[0, 1] > 0  # the most visited rank highest


def test_cosine_distance(array):
    # (3 4).(4 3) = 24, |.| = 5, 5; opposite directions: +1
    s1, s2 = array([[3.0, 4.0], [1.0, 0.0]]), array([[4.0, 3.0], [-2.0, 0.0]])
    check(eq.cosine_distance(s1, s2), [-0.96, 1.0], array)


def test_contrastive_infonce(array):
    # classes {a, b} and {c}, a = b = (1 0), c = (0 1), tau = 1/2; class of c has no pair.
    # pairs a-b, b-a: 2 e^2; negatives a-c, b-c: 2 e^0.  -log(2 e^2 / 2) = -2
    embedding = array([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0], [1.0, 1.0]])
    check(eq.contrastive_infonce(embedding, array([0, 4, 0, -1]), 0.5), -2.0, array)


def test_contrastive_infonce_is_the_double_loop():
    rng = np.random.default_rng(0)
    s, label = rng.normal(size=(20, 4)), rng.integers(-1, 3, 20)
    s /= np.linalg.norm(s, axis=1, keepdims=True)
    losses = []
    for k in set(label[label >= 0]):
        p, q = np.flatnonzero(label == k), np.flatnonzero((label >= 0) & (label != k))
        top = sum(math.exp(s[i] @ s[j] / 0.1) for i in p for j in p if i != j)
        bottom = sum(math.exp(s[i] @ s[j] / 0.1) for i in p for j in q)
        losses.append(-math.log(top / bottom))
    assert len(losses) == 3
    check(eq.contrastive_infonce(s, label, 0.1), np.mean(losses), np.array)


# Open question; PSE


def test_rank_contrast(array):
    # cos: 0-1 same direction 1, 0-2 and 1-2 orthogonal 0; tau = 1. u = 0, 0, h: weights e^0, e^-1
    # from anchors 0 and 1, equal from 2. softmax of (1, 0) = (e, 1) / (e + 1), of (0, 0) = 1/2
    embedding = array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [7.0, 7.0]])
    near = math.e / (math.e + 1)  # both the weight 1 / (1 + e^-1) and the softmax
    anchor = -(near * math.log(near) + (1 - near) * math.log(1 - near))
    expected = (2 * anchor + math.log(2)) / 3
    result = eq.rank_contrast(embedding, array([0.0, 0.0, 0.2, nan]), 1.0, 0.2)
    check(result, expected, array)


def test_rank_contrast_prefers_embeddings_in_order_of_rank():
    angle, u = torch.linspace(0, 1, 9), torch.linspace(0, 0.9, 9)
    ordered = torch.stack([angle.cos(), angle.sin()], 1)
    shuffled = ordered[torch.tensor([4, 0, 8, 2, 6, 1, 7, 3, 5])]
    losses = [eq.rank_contrast(x, u, 0.1, 0.2) for x in (ordered, shuffled)]
    assert losses[0] < losses[1]
    alone = torch.ones(2, 2, requires_grad=True)
    loss = eq.rank_contrast(alone, torch.tensor([0.5, nan]), 0.1, 0.2)
    loss.backward()
    assert loss == 0


def test_policy_similarity_metric(array):
    # d_11 = 4; d_01 = 2 + d_11 / 2 = 4 (column clamped); d_10 = 3 + d_11 / 2; d_00 = 1 + d_11 / 2
    check(eq.policy_similarity_metric(array([[1, 2], [3, 4]]), 0.5), [[3, 4], [5, 4]], array)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 7), (7, 4)])
def test_policy_similarity_metric_is_the_recursion(shape, array):
    cost = np.random.default_rng(0).random(shape)
    t1, t2 = shape

    def d(i, j):
        if (i, j) == (t1 - 1, t2 - 1):
            return cost[i, j]
        return cost[i, j] + 0.9 * d(min(i + 1, t1 - 1), min(j + 1, t2 - 1))

    expected = [[d(i, j) for j in range(t2)] for i in range(t1)]
    given_cost = array(cost)
    check(eq.policy_similarity_metric(given_cost, 0.9), expected, array)
    check(given_cost, cost, array)  # left as it was


# Judging an agent by logged data


def test_expected_value_by_hand():
    q = np.array([[1.0, 3.0], [0.0, 2.0]])
    pi = np.array([[0.25, 0.75], [1.0, 0.0]])
    assert eq.expected_value(q, pi).tolist() == [2.5, 0.0]
    two = eq.expected_value(np.stack([q, q], 2), np.stack([pi, pi[:, ::-1]], 2))
    assert two.tolist() == [[2.5, 1.5], [0.0, 2.0]]


def test_temperature_by_hand():
    scores, action = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])
    found = eq.fit_temperature(scores, action)
    assert found == pytest.approx(2 / np.log(3))  # softmax(2/T) = 3/4
    nll = eq.tempered_nll(scores, action, found)
    assert nll == pytest.approx([np.log(4 / 3)] * 3 + [np.log(4)])
    for other in (0.9 * found, 1.1 * found):
        assert eq.tempered_nll(scores, action, other).mean() > nll.mean()
    assert eq.fit_temperature(scores[:3], action[:3]) == pytest.approx(1e-3)  # never wrong
    assert eq.fit_temperature(scores, 1 - action) == pytest.approx(1e3)  # worse than chance


def test_calibration_by_hand():
    confidence = np.array([0.5, 0.6, 0.9, 1.0])
    correct = np.array([True, False, True, False])
    bins = eq.calibration_bins(confidence, correct, n_bins=2)
    assert bins == pytest.approx(np.array([[1, 0.5, 1], [3, 2.5, 1]]))  # (0, 1/2], (1/2, 1]
    assert eq.calibration_error(bins) == pytest.approx((0.5 + 1.5) / 4)
    halves = [eq.calibration_bins(confidence[i], correct[i], 2) for i in ([0, 1], [2, 3])]
    assert sum(halves) == pytest.approx(bins)  # episodes add up


def test_weighted_importance_sampling_by_hand():
    # Two episodes of two steps; the agent is twice as likely to do the first, half the second.
    ratio = np.array([[2.0, 2.0], [1.0, 0.5]])
    reward = np.array([[1.0, 0.0], [0.0, 4.0]])
    weight = eq.decision_weights(ratio)
    assert weight == pytest.approx(np.array([[1, 1], [1 / 2, 1 / 8]]))  # 2, 4 and 1, 1/2
    found = eq.weighted_return((weight * reward).sum(0), weight.sum(0), gamma=0.5)
    assert found == pytest.approx(2 / 3 + 0.5 * (0.5 * 4) / 4.5)
    assert eq.effective_share(np.array([1.0, 1.0, 0.0, 0.0])) == 0.5
    assert eq.effective_share(np.zeros(3)) == 0.0


def test_weights_of_long_episodes_stay_finite_and_none_is_no_estimate():
    weight = eq.decision_weights(np.full((2, 2000), 10.0))
    assert (weight == 1).all()
    nobody = eq.decision_weights(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert nobody[:, 1].tolist() == [0.0, 0.0]
    assert np.isnan(eq.weighted_return(nobody.sum(0), nobody.sum(0), 0.9))
