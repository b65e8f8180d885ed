"""A served app on a real store, as in tests/server."""

from tests.server.conftest import serve, served, settings  # noqa: F401 - fixtures
from tests.server.test_doctor import examined  # noqa: F401 - a fixture
