import importlib.util
import sys
from pathlib import Path

import pytest

# Test files are imported one by one, without a package: what they share is made importable here.
for name in ("hub_server", "ranks_kit"):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


@pytest.fixture
def online(monkeypatch):
    """The client as it is where HF_HUB_OFFLINE isn't set, over plain HTTP, with quick retries of its own."""
    import huggingface_hub.constants as constants
    import huggingface_hub.utils._http as http

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(http.time, "sleep", lambda _: None)
