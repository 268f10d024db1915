"""Every check finds the fault it is meant for, and no other check complains about it."""

import pytest

from pprgnn.testing import ConformanceError, Outcome, check_conv, conv_checks
from tests.testing import convs

# Where several checks are named, the fault really has several consequences.
MEANT_FOR = {
    convs.ReturnsTuple: {"output_shape"},
    convs.HasOneChannelTooMany: {"output_shape"},
    convs.ReadsCOOTransposed: {"sparse_layouts"},
    convs.RefusesCSC: {"csc_layout"},
    convs.AddsToSelfLoopsOfMatrices: {"self_loops"},
    convs.IgnoresWeights: {"edge_weight", "edge_weight_gradient"},
    convs.TakesNoWeightAsHalf: {"edge_weight"},
    convs.DetachesWeights: {"edge_weight_gradient"},
    convs.AlwaysAnswersInDouble: {"dtype"},
    convs.LosesPrecision: {"dtype"},
    convs.LeavesBufferOnOtherDevice: {"device"},
    convs.UsesDefaultDevice: {"default_device"},
    convs.AssumesContiguousFeatures: {"strided_inputs"},
    convs.PrefersLowIds: {"permutation"},
    convs.ScalesByNumberOfEdges: {"batching"},
    convs.NeedsAnEdge: {"no_edges"},
    convs.CountsNodesByEdges: {"isolated_nodes"},
    convs.SqueezesOneNode: {"single_node"},
    convs.RefusesStacks: {"static_graph"},
    convs.DiffersWithoutGradient: {"gradient_modes"},
    convs.IgnoresFlow: {"flow"},
    convs.NeedsChannels: {"lazy_channels"},
    convs.KnowsGraphByObject: {"changed_graph", "changed_data", "changed_matrix"},
    convs.KnowsGraphByVersion: {"changed_data"},
    convs.KnowsMatrixByObject: {"changed_matrix"},
    convs.IgnoresCached: {"cached"},
    convs.ResetsWeightOnly: {"reset_parameters"},
    convs.ResetKeepsCache: {"reset_parameters"},
    convs.ResetsToInfinity: {"reset_parameters"},
    convs.TellsPassesInRepr: {"text"},
    convs.HidesItsName: {"text"},
    convs.KeepsTensorOutOfState: {"state_dict"},
    convs.SharesParametersWithCopies: {"deep_copy"},
    convs.KeepsItsOutput: {"deep_copy"},
    convs.HoldsLambda: {"pickling"},
    convs.ClampsWeightsInPlace: {"inputs_unchanged"},
    convs.ScalesGradient: {"gradient", "gradient_penalty"},
    convs.DetachesFeatures: {"gradient", "complete_gradient"},
    convs.HasUnusedParameter: {"complete_gradient"},
    convs.LeaksGradientBetweenComponents: {"local_gradient"},
    convs.CutsColumns: {"wrong_columns"},
    convs.WrapsNegativeIds: {"unknown_nodes"},
    convs.CrashesOnIds: {"unknown_nodes"},
    convs.HidesNaN: {"nan_features"},
    convs.CrashesOnTuples: {"tuple_features"},
    convs.RefusesEdgeIndex: {"edge_index_class"},
    convs.SortsEdgeIndexWrongly: {"edge_index_class"},
    convs.AssumesContiguousWeights: {"strided_parameters"},
    convs.StopsAtZeros: {"zeros_first"},
    convs.IgnoresHooks: {"message_hooks"},
    convs.KeepsItsOutputForTheGradient: {"in_place_activation"},
    convs.ForgetsSecondGradient: {"gradient_penalty"},
}
NAMES = {check.__name__ for check in conv_checks()}


def test_a_good_convolution_passes_every_check():
    report = check_conv(convs.GoodConv)
    assert {result.outcome for result in report.results} == {Outcome.PASSED}


@pytest.mark.parametrize("conv", MEANT_FOR, ids=lambda conv: conv.__name__)
def test_a_fault_fails_the_check_meant_for_it(conv):
    with pytest.raises(ConformanceError) as caught:
        check_conv(conv)
    assert {failure.name for failure in caught.value.report.failures} == MEANT_FOR[conv]


def test_a_state_that_drifts_is_found():
    with pytest.raises(ConformanceError, match="determinism: A second pass gives other values"):
        check_conv(convs.DriftsWithEachPass, skip=NAMES - {"determinism"})


def test_every_check_has_a_fault_and_a_sentence():
    assert set().union(*MEANT_FOR.values()) | {"determinism"} == NAMES
    for check in conv_checks():
        assert check.sentence.endswith("."), check.__name__
        assert "\n" not in check.sentence, check.__name__
