"""Suites of layers: as many as the papers count, with the flops that their shapes amount to."""

from collections import Counter
from math import prod

import pytest

from tilesolve.contractions.errors import SuiteError
from tilesolve.contractions.layer_suites import layer_suite, list_layer_suites


def count(layers):
    found = Counter()
    for one in layers:
        found[one.model] += one.times
    return found


def gigaflops(layers, model):
    return sum(one.times * one.convolution.flops for one in layers if one.model == model) / 1e9


def test_sconv_has_the_papers_layers():
    layers = layer_suite("sconv")
    assert count(layers) == {
        "GoogleNet": 57,
        "InceptionV2": 69,
        "ResNet-18": 20,
        "ResNet-50": 53,
        "ResNet-152": 155,
        "SqueezeNet": 26,
        "VGG-16": 13,
    }
    assert count(one for one in layers if one.pointwise) == {
        "GoogleNet": 37,
        "InceptionV2": 37,
        "ResNet-50": 30,
        "ResNet-152": 98,
        "SqueezeNet": 17,
    }
    assert len({one.convolution for one in layers}) == 136
    measured = [3.16, 4.04, 3.63, 7.71, 22.56, 1.64, 30.69]
    names = ["GoogleNet", "InceptionV2", "ResNet-18", "ResNet-50", "ResNet-152", "SqueezeNet"]
    for name, expected in zip([*names, "VGG-16"], measured, strict=True):
        assert gigaflops(layers, name) == pytest.approx(expected, abs=0.005)


def test_mobilenet_has_its_depthwise_layers():
    layers = layer_suite("mobilenet")
    assert count(layers) == {"MobileNetV2": 52}
    depthwise = [one for one in layers if one.convolution.groups > 1]
    assert sum(one.times for one in depthwise) == 17
    assert all(one.convolution.groups == one.convolution.channels for one in depthwise)
    assert gigaflops(layers, "MobileNetV2") == pytest.approx(0.6, abs=0.01)
    sizes = [one.convolution.out_size for one in layers]
    assert (sizes[0], sizes[-1]) == ((112, 112), (7, 7))


@pytest.mark.parametrize(("name", "layers"), [("yolo9000", 11), ("resnet18", 12)])
def test_ttile_suites_keep_the_images_extent(name, layers):
    found = layer_suite(name)
    assert len(found) == layers
    for one in found:
        shape = one.convolution
        step = shape.stride[0]
        assert shape.out_size == tuple(-(-n // step) for n in shape.size)


@pytest.mark.parametrize("name", list_layer_suites())
def test_flops_are_those_of_all_products(name):
    for one in layer_suite(name):
        shape = one.convolution
        each = shape.channels // shape.groups * prod(shape.window)
        assert shape.flops == 2 * prod(shape.out_size) * shape.filters * each


def test_other_names_are_refused():
    with pytest.raises(SuiteError, match="no suite of layers 'vgg'; there are sconv"):
        layer_suite("vgg")
