"""How the suite is used: alone, in pytest, with known failures, and what it says."""

import doctest
from unittest import SkipTest

import pytest
import torch
from torch_geometric.nn import SAGEConv

import pprgnn.testing.suite
from pprgnn.testing import ConformanceError, Outcome, check_conv, conv_checks
from tests.testing.convs import GoodConv, IgnoresFlow, RefusesStacks


@pytest.mark.parametrize("check", conv_checks())
def test_checks_are_parameters_of_pytest(check, request):
    check(GoodConv)
    assert request.node.name.endswith(f"[{check.__name__}]")


def test_a_failed_check_says_what_is_wrong():
    with pytest.raises(ConformanceError) as caught:
        check_conv(IgnoresFlow)
    assert str(caught.value).startswith("IgnoresFlow fails 1 of ")
    assert "\n  flow: The other flow differs from reversed edges." in str(caught.value)
    assert caught.value.report["flow"].outcome is Outcome.FAILED


def test_an_expected_failure_is_shown_with_its_reason():
    report = check_conv(RefusesStacks, expected_failures={"static_graph": "one graph at a time"})
    assert report["static_graph"].outcome is Outcome.EXPECTED_FAILURE
    table = str(report).splitlines()
    assert table[0].startswith("RefusesStacks: ")
    assert table[0].endswith("1 expected failure")
    assert len(table) == 1 + len(conv_checks())
    assert [line.split() for line in table if "static_graph" in line] == [
        ["static_graph", "expected", "failure", "one", "graph", "at", "a", "time"]
    ]


def test_an_expected_failure_that_passes_is_an_error():
    with pytest.raises(ConformanceError, match=r"flow: It was expected to fail \(no flow yet\), but holds"):
        check_conv(GoodConv, expected_failures={"flow": "no flow yet"})


def test_what_does_not_apply_is_skipped_with_a_reason():
    report = check_conv(SAGEConv, skip=["text"])
    skipped = {result.name: result.reason for result in report.results if result.outcome is Outcome.SKIPPED}
    no_weight = "forward takes no edge_weight"
    assert skipped == {
        "edge_weight": no_weight,
        "edge_weight_gradient": no_weight,
        "changed_matrix": no_weight,
        "cached": "the layer has no cached",
        "text": "left out on request",
    }
    weight = next(check for check in conv_checks() if check.__name__ == "edge_weight")
    with pytest.raises(SkipTest, match=no_weight):  # which pytest shows as skipped
        weight(SAGEConv)


def test_an_error_of_the_layer_is_a_failure_that_says_what_should_hold():
    class Crashes(GoodConv):
        def combine(self, matrix, h):
            raise KeyError("deep inside")

    with pytest.raises(
        ConformanceError, match=r"shape \(num_nodes, out_channels\). But KeyError came: 'deep inside'"
    ):
        check_conv(Crashes)


@pytest.mark.parametrize("argument", [{"skip": ["colour"]}, {"expected_failures": {"colour": "grey"}}])
def test_misspelt_checks_are_refused(argument):
    with pytest.raises(ValueError, match="There is no check colour; the checks are output_shape, sparse_layouts"):
        check_conv(GoodConv, **argument)


def test_bad_factories_are_refused():
    conv = GoodConv(4, 8)
    with pytest.raises(ValueError, match="must return a fresh layer each time"):
        check_conv(lambda *channels: conv)
    with pytest.raises(TypeError, match=r"must return a torch.nn.Module, but returned \(4, 8\)"):
        check_conv(lambda *channels: channels)


def test_random_numbers_and_repeats():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert check_conv(GoodConv) == check_conv(GoodConv)
    assert torch.equal(torch.rand(2), expected)


def test_the_example_runs():
    result = doctest.testmod(pprgnn.testing.suite)
    assert result.attempted
    assert not result.failed
