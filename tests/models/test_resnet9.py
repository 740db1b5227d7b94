from __future__ import annotations

import torch


def test_size_of_pages_network(sketch, parameters):
    # David Page's ResNet-9 has 6,573,120 parameters: 3x3 kernels and two numbers a channel for each BatchNorm
    convolutions = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    by_hand = sum(9 * inputs * outputs + 2 * outputs for inputs, outputs in convolutions) + 512 * 10
    assert parameters(sketch("resnet9", (3, 32, 32))) == by_hand == 6_573_120


def test_channels_follow_the_width(sketch):
    model = sketch("resnet9", (3, 32, 32), width=8)
    assert [model.first[0].out_channels, model.stage2[0].out_channels, model.head.in_features] == [8, 32, 64]


def test_residual_pairs_add_to_their_input(make):
    model = make("resnet9", (3, 32, 32), width=4).eval()
    x = torch.randn(2, 8, 16, 16)
    residual = model.stage1[1]
    with torch.no_grad():
        for layer in residual.layers:
            layer[0].weight.zero_()
    torch.testing.assert_close(residual(x), x)


def test_dropout_is_before_the_last_layer(make):
    model = make("resnet9", (3, 32, 32), width=16, dropout=0.5)
    dropped = model.features(torch.randn(8, 3, 32, 32)).eq(0).double().mean().item()
    model.eval()
    kept = model.features(torch.randn(8, 3, 32, 32)).eq(0).double().mean().item()
    assert kept < 0.25 < 0.4 < dropped < 0.75
