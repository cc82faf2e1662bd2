from collections.abc import Iterator

import pytest

from tests.test_e2e.site import Lab, make_lab, processes_of


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Server, pool, worker and deployments; nothing is left of them at the end."""
    made = make_lab(tmp_path_factory.mktemp("home"))
    try:
        made.up()
        yield made
    finally:
        made.down()
    assert processes_of(made.site.home) == []
