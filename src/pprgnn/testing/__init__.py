"""A public conformance suite for PyTorch Geometric convolutions: what a user of one may rely on, checked."""

from pprgnn.testing.suite import Check, ConformanceError, Outcome, Report, Result, check_conv, conv_checks

__all__ = ["Check", "ConformanceError", "Outcome", "Report", "Result", "check_conv", "conv_checks"]
