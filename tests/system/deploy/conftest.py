"""The service as deploy/compose.yaml has it, with the very commands and files, as processes on loopback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def private(tmp_path_factory):
    """Draw passwords as an operator would, for a store on this machine."""
    from shipped import Private

    return Private(tmp_path_factory.mktemp("drawn") / "private")


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """Return a folder for machine code, which is empty when the tests begin; those that run beside each other share it."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if own.name.startswith("popen-") else own) / "kernels"


@pytest.fixture(scope="session")
def composed(private, tmp_path_factory, kernels):
    """Run the service."""
    from service import Service

    with Service(private, tmp_path_factory.mktemp("composed"), kernels) as service:
        yield service
