"""One tree of errors, each carrying what failed."""

from __future__ import annotations

import pickle

import pytest

import deniable
from deniable import errors
from deniable.errors import ConfigurationError, DeniableError, Fault, ParameterError, PayloadError, RegistryError


@pytest.mark.parametrize("kind", [ParameterError, RegistryError, PayloadError, ConfigurationError])
def test_the_tree(kind):
    """Every error is a DeniableError, a ValueError, and public."""
    assert issubclass(kind, DeniableError)
    assert issubclass(kind, ValueError)
    assert getattr(deniable, kind.__name__) is kind
    assert kind.__name__ in (errors.__doc__ or "")


def test_a_parameter_error_has_rule_and_value():
    """The message says the value, and the rule that it breaks."""
    error = ParameterError("write less than 5", 7)
    assert (error.rule, error.value, str(error)) == ("write less than 5", 7, "7: write less than 5")
    assert str(ParameterError("the number of inputs: write 2 or more", 1)) == "the number of inputs = 1: write 2 or more"
    assert str(ParameterError("an answer must be a text", "int", "an int")) == "an answer must be a text; this is an int"


def test_a_payload_error_has_a_code():
    """The code is for programs and the message for people."""
    error = PayloadError("row_range", "a row must be below 3; this is 4")
    assert (error.code, str(error)) == ("row_range", "a row must be below 3; this is 4")


def test_a_registry_error_carries_all_faults():
    """Each fault is one line: file, metric if it is of one, what is wrong, what to write."""
    faults = [Fault("m.toml", "a", "x: write 2", 1), Fault("m.toml", "-", "write z", "w")]
    error = RegistryError(faults)
    assert error.faults == tuple(faults)
    assert str(error) == "m.toml: a: x = 1: write 2\nm.toml: 'w': write z"


def test_a_fault_of_what_is_missing():
    """What is missing has no value to show."""
    assert str(Fault("m.toml", "a", "x.y: write a text", None, 3)) == "m.toml:3: a: x.y is missing: write a text"


def test_faults_are_values():
    """Faults compare, hash and pickle."""
    fault = Fault("m.toml", "a", "x is y", 1)
    assert pickle.loads(pickle.dumps(fault)) == fault
    assert len({fault, Fault("m.toml", "a", "x is y", 1)}) == 1


@pytest.mark.parametrize(
    "error",
    [
        errors.ParameterError("a rule holds", "another"),
        errors.PayloadError("payload_length", "a rule"),
        errors.RegistryError([errors.Fault("metrics.toml", "ui.theme", "a rule", 3)]),
        errors.ServedRegistryError([errors.Fault("metrics.toml", "-", "a rule")]),
        errors.ConfigurationError("a rule"),
    ],
)
def test_another_process_can_hand_an_error_on(error):
    """A copy says the same, and has the same attributes."""
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))
