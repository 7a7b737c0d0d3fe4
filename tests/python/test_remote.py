"""A process on another machine, through its agent: the same as one that is here."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Start

import probing
from probing import connect
from probing._command import _path


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Where an agent listens; commands of the same user find its token by themselves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = subprocess.Popen([_path(), "agent", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    listening = process.stderr.readline().split()
    assert listening[:2] == ["listening", "on"]
    yield listening[2]
    process.kill()
    process.communicate()


def test_a_process_behind_an_agent_answers(agent: str, start: Start) -> None:
    target = start("waiting.py", PROBING="1")
    with connect(agent) as probe:
        assert probe.pid == target.pid
        assert probe.eval("6 * 7").value == 42
        with pytest.raises(probing.RemoteError, match="ZeroDivisionError"):
            probe.eval("1 / 0")
        assert "waiting.py" in str(probe.backtrace())
        table = probe.query("SELECT pid FROM process.info")
        assert table.to_dicts() == [{"pid": target.pid}]
    other = start("waiting.py", PROBING="1")
    with pytest.raises(probing.TargetError, match="this command takes one target, and these are 2"):
        connect(agent)
    with connect(f"{agent}/{other.pid}") as probe:
        assert probe.eval("__import__('os').getpid()").value == other.pid


def test_an_agent_that_was_never_met_is_refused_unless_it_is_said_to_be_trusted(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start("waiting.py", PROBING="1")
    process = subprocess.Popen([_path(), "agent", "--listen", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        port = process.stderr.readline().split()[2].rpartition(":")[2]
        fingerprint = process.stderr.readline().split()[1]
        tokens = process.stderr.readline().split()[2]
        token = Path(tokens).read_text().split()[1]
        # Somebody on another machine has another private folder.
        monkeypatch.setenv("PROBING_DIR", str(tmp_path / "elsewhere"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        agent = f"127.0.0.1:{port}"
        with pytest.raises(probing.TargetError, match="certificate not trusted") as refused:
            connect(agent, token=token)
        assert fingerprint in str(refused.value)
        with connect(agent, token=token, fingerprint=fingerprint) as probe:
            assert probe.eval("6 * 7").value == 42
        with pytest.raises(probing.TargetError, match="cannot use the certificates"):
            connect(agent, token=token, ca=tmp_path / "none.pem")
        with connect(agent, token=token, accept_new=True) as probe:
            assert probe.eval("6 * 7").value == 42
        with connect(agent, token=token) as probe:
            assert probe.eval("6 * 7").value == 42
    finally:
        process.kill()
        process.communicate()


def test_who_has_no_token_is_not_let_in(agent: str, start: Start) -> None:
    start("waiting.py", PROBING="1")
    with pytest.raises(probing.TargetError, match="the agent does not know this token"):
        connect(agent, token="wrong")
