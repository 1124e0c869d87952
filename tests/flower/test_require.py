"""If Flower is missing or too old, one line tells what to install."""

import subprocess
import sys
from importlib import metadata

import pytest

from fedavot.errors import FedavotError, MissingPackageError
from fedavot.flower._require import require_flower


def found(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda name: version)


def test_a_missing_flower_is_reported_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedavot\[flower\]'") as caught:
        require_flower()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, FedavotError)


@pytest.mark.parametrize("version", ["1.21.0", "1.9.0", "0.18", "1.8", "1"])
def test_an_old_flower_is_reported_in_one_line(monkeypatch, version):
    found(monkeypatch, version)
    with pytest.raises(MissingPackageError, match=f"flwr>=.*found flwr {version}") as caught:
        require_flower()
    assert "pip install --upgrade" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", ["1.41.0", "2.0", "1.100", "2.0rc1", "1.41.0.dev20260101"])
def test_a_new_flower_is_taken(monkeypatch, version):
    found(monkeypatch, version)
    require_flower()


def test_importing_the_package_without_flower_raises_that_line():
    code = "import sys; sys.modules['flwr'] = None; import fedavot.flower"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fedavot.errors.MissingPackageError: fedavot.flower needs flwr")


def test_importing_the_library_does_not_import_flower():
    code = "import sys, fedavot; print('flwr' in sys.modules, 'fedavot.flower' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
