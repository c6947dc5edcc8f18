import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("hub_server", Path(__file__).with_name("hub_server.py"))
hub_server = sys.modules["hub_server"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hub_server)


@pytest.fixture
def online(monkeypatch):
    """The client as it is where HF_HUB_OFFLINE isn't set, over plain HTTP, with quick retries of its own."""
    import huggingface_hub.constants as constants
    import huggingface_hub.utils._http as http

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(http.time, "sleep", lambda _: None)
