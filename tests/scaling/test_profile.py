"""Layers with their gradients and times: from shapes, from a table, from a measurement."""

from __future__ import annotations

import pytest
from hand import P100, V100

from bigbatch.errors import Problem
from bigbatch.scaling import layers
from bigbatch.scaling.machine import Device
from bigbatch.scaling.profile import LayerShape, read_csv
from bigbatch.scaling.workload import Workload, imagenet_layers, network_layers


def parameters(found: list[LayerShape]) -> int:
    return sum(sum(shape.gradient_bytes) for shape in found) // 4


def multiply_adds(found: list[LayerShape]) -> float:
    return sum(shape.flops for shape in found) / 2e9


def test_published_sizes_of_networks_from_elsewhere():
    assert parameters(network_layers("vgg16")) == 138_357_544
    assert multiply_adds(network_layers("vgg16")) == pytest.approx(15.47, abs=0.01)
    assert parameters(network_layers("inception3")) == 23_834_568
    assert multiply_adds(network_layers("inception3")) == pytest.approx(5.71, abs=0.01)


def test_a_model_part_is_counted():
    found = imagenet_layers("resnet", 50)
    assert parameters(found) == 25_557_032
    assert sum(len(shape.gradient_bytes) for shape in found) == 161
    assert multiply_adds(found) == pytest.approx(4.09, abs=0.01)


def test_words_and_vocabulary():
    found = layers.find_layer_shapes(Workload("lstm_words", {"embedding": 4, "hidden": 8, "layers": 1}, (5,), 11))
    by_name = {shape.name: shape for shape in found}
    # embedding 11·4; LSTM 4·8·(4 + 8) and two biases of 32; head 8·11 and 11; each at 5 positions, looking up is free
    assert sum(by_name["embedding"].gradient_bytes) == 4 * 44
    assert by_name["embedding"].flops == 0
    assert sum(by_name["lstm"].gradient_bytes) == 4 * (384 + 64)
    assert by_name["lstm"].flops == 2 * 5 * 384
    assert by_name["head"].flops == 2 * 5 * 88


def test_a_roofline_by_hand():
    # 2 TFLOPS and 100 GB/s at half of both: 4 samples · 1 GFLOP = 4000 µs; 4 · 5 MB + 20 MB = 800 µs
    device = Device(name="d", peak_tflops=2, memory_gb_s=100, efficiency=0.5, kernel_us=7)
    busy = LayerShape("busy", (20_000_000,), 1e9, 5e6)
    moving = LayerShape("moving", (20_000_000,), 1e6, 5e6)
    idle = LayerShape("idle", (), 0.0, 4.0)
    profile = device.profile("m", [busy, moving, idle], 4)
    assert [layer.name for layer in profile.layers] == ["idle", "moving", "busy"]
    assert [layer.backward_us for layer in profile.layers] == pytest.approx([7, 1600, 8000])
    assert profile.forward_us == pytest.approx(4000 + 800 + 7)
    ready = [(gradient.layer, gradient.ready_us) for gradient in profile.gradients()]
    assert ready == [("moving", pytest.approx(1607)), ("busy", pytest.approx(9607))]


def test_devices_are_as_fast_as_published():
    # NVIDIA: 367 images/s on a V100; TensorFlow: 219 on a P100 at batch 64
    found = imagenet_layers("resnet", 50)
    assert 128e6 / V100.profile("r", found, 128).compute_us == pytest.approx(367, rel=0.01)
    assert 64e6 / P100.profile("r", found, 64).compute_us == pytest.approx(219, rel=0.01)


def test_a_measured_speed_sets_the_sum_and_keeps_the_shares():
    plain = V100.profile("v", network_layers("vgg16"), 64)
    scaled = plain.at_throughput(160.0, "somebody")
    assert scaled.compute_us == pytest.approx(64 / 160 * 1e6)
    assert scaled.layers[0].backward_us / scaled.backward_us == pytest.approx(
        plain.layers[0].backward_us / plain.backward_us
    )
    assert "160 samples/s (somebody)" in scaled.source


def test_gradients_are_timed_where_they_arrive():
    profile = layers.time_layers(Workload("mlp", {"hidden": [32, 16]}, (1, 8, 8), 10), rank_batch=16)
    # backward comes from the head to the first layer; sizes are those of the weights and biases
    assert profile.layers[0].name.startswith("head")
    assert profile.layers[-1].name.startswith("layers.0")
    sizes = {layer.name: layer.gradient_bytes for layer in profile.layers}
    assert sizes["layers.0.weight"] == (4 * 64 * 32,)
    assert profile.gradient_bytes == 4 * (64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10)
    assert min(layer.backward_us for layer in profile.layers) > 0
    assert profile.forward_us > 0


TABLE = "layer,backward_us,gradient_bytes\nforward,1000,\nc,500,800000\nb,700,400000+16\na,900,300000\nupdate,200,\n"


def test_a_table_of_layers(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    profile = read_csv(path, 8)
    assert (profile.forward_us, profile.backward_us, profile.update_us) == (1000, 2100, 200)
    assert [gradient.bytes for gradient in profile.gradients()] == [800000, 400000, 16, 300000]
    assert profile.at_batch(16).compute_us == 6600


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read as a table of layers"),
        ("", "is not a table of layers: use the columns layer, backward_us, gradient_bytes"),
        ("layer,time\na,1\n", "is not a table of layers"),
        ("layer,backward_us,gradient_bytes\na,soon,4\n", "line 2: could not convert string to float: 'soon'"),
        ("layer,backward_us,gradient_bytes\na,-1,4\n", "line 2: times and sizes must be positive"),
        ("layer,backward_us,gradient_bytes\na,nan,4\n", "line 2: times and sizes must be positive"),
        ("layer,backward_us,gradient_bytes\na,1,0\n", "line 2: times and sizes must be positive"),
        ("layer,backward_us,gradient_bytes\na,1,\n", "has no times or no gradients"),
    ],
)
def test_a_table_that_is_none_is_one_sentence(text, sentence, tmp_path):
    path = tmp_path / "mine.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Problem) as caught:
        read_csv(path, 8)
    assert sentence in str(caught.value)
