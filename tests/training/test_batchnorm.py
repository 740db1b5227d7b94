import copy

import torch
from torch import nn

from bigbatch import engines, parts
from bigbatch.training.batchnorm import RunningStatisticsUpdater

LOCAL = engines.start(parts.configure("engines", "local"))


def statistics_after(layer, groups):
    layer = copy.deepcopy(layer)
    with RunningStatisticsUpdater(layer, LOCAL).accumulate(len(groups), len(groups)):
        for group in groups:
            layer(group)
    return layer


def test_one_group_is_what_torch_does():
    ours = statistics_after(nn.BatchNorm1d(3), [x := torch.randn(8, 3)])
    torchs = nn.BatchNorm1d(3)
    torchs(x)
    assert torch.equal(ours.running_mean, torchs.running_mean)
    assert torch.equal(ours.running_var, torchs.running_var)
    assert ours.num_batches_tracked == torchs.num_batches_tracked == 1


def test_equal_groups_move_the_statistics_as_far_as_updates_in_a_row():
    x = torch.randn(8, 3, dtype=torch.float64)
    ours = statistics_after(nn.BatchNorm1d(3).double(), [x, x, x])
    torchs = nn.BatchNorm1d(3).double()
    for _ in range(3):
        torchs(x)
    torch.testing.assert_close(ours.running_mean, torchs.running_mean)
    torch.testing.assert_close(ours.running_var, torchs.running_var)
    assert ours.num_batches_tracked == 3


def test_the_order_of_groups_does_not_count():
    a, b = torch.randn(2, 8, 3, dtype=torch.float64)
    layer = nn.BatchNorm1d(3).double()
    one, other = statistics_after(layer, [a, b]), statistics_after(layer, [b, a])
    torch.testing.assert_close(one.running_mean, other.running_mean)
    torchs = copy.deepcopy(layer)
    torchs(a), torchs(b)
    assert not torch.allclose(one.running_mean, torchs.running_mean)  # torch's own depends on it


def test_the_mean_of_groups_by_hand():
    # group means 1 and 3, momentum 0.1: two groups move by 1 - 0.9² = 0.19 towards 2
    layer = statistics_after(
        nn.BatchNorm1d(1).double(), [torch.tensor([[0.0], [2.0]]).double(), torch.tensor([[2.0], [4.0]]).double()]
    )
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.38]).double())


def test_momentum_is_put_back_and_a_plain_mean_stays_one():
    layer = nn.BatchNorm1d(1, momentum=None).double()
    groups = [
        torch.tensor([[0.0], [2.0]]).double(),
        torch.tensor([[2.0], [4.0]]).double(),
        torch.tensor([[4.0], [6.0]]).double(),
    ]
    after = statistics_after(statistics_after(layer, groups[:2]), groups[1:])
    torch.testing.assert_close(after.running_mean, torch.tensor([(1 + 3 + 3 + 5) / 4]).double())
    assert after.momentum is None
    assert statistics_after(nn.BatchNorm1d(1, momentum=0.3), [torch.randn(4, 1), torch.randn(4, 1)]).momentum == 0.3


def test_unchanged_statistics():
    layer = nn.BatchNorm1d(3)
    before = copy.deepcopy(layer.state_dict())
    with RunningStatisticsUpdater(layer, LOCAL).frozen():
        out = layer(torch.randn(8, 3) + 5)
    assert out.mean().abs() < 1e-5  # normalised by the batch
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
    layer(torch.randn(8, 3))
    assert layer.num_batches_tracked == 1
