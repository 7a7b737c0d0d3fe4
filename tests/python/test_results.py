"""How results show themselves, and what they become."""

import re
import sys

import pytest

import probing
from probing import Probe


def test_a_notebook_shows_text_not_markup(prepared: Probe) -> None:
    shown = prepared.eval("print('<script>&'); '<b>'")._repr_html_()
    assert shown == "<pre>&lt;script&gt;&amp;\n&#x27;&lt;b&gt;&#x27;</pre>"
    backtrace = prepared.backtrace()._repr_html_()
    assert "in &lt;module&gt;" in backtrace
    assert "<module>" not in backtrace
    table = probing.Table(["<a>", "b"], [("<i>", None)])
    assert table._repr_html_() == (
        "<table><thead><tr><th>&lt;a&gt;</th><th>b</th></tr></thead>"
        "<tbody><tr><td>&lt;i&gt;</td><td></td></tr></tbody></table>"
    )


EVIL = "\x1b[35;5m\x1b]0;evil\x07\x9b7m\x7f\u202e\u2066\u2028\r\nFORGED <b>"


def test_hostile_words_are_shown_and_not_obeyed(prepared: Probe) -> None:
    def assert_shown(text: str) -> None:
        assert "[35;5m" in text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)

    evaluated = prepared.eval(f"print({EVIL!r}); type('Odd', (), {{'__repr__': lambda self: {EVIL!r}}})()")
    assert evaluated.output == EVIL + "\n"
    assert evaluated.text == EVIL
    for text in (repr(evaluated), str(evaluated), evaluated._repr_html_()):
        assert_shown(text)
    table = probing.Table([EVIL], [(EVIL,)], note=EVIL)
    assert table.rows == [(EVIL,)]
    assert_shown(repr(table))
    assert_shown(table._repr_html_())
    assert "FORGED" not in [line[:6] for line in repr(probing.Table([EVIL], [(EVIL,)])).splitlines()]
    with pytest.raises(probing.RemoteError) as raised:
        prepared.eval(f"raise ValueError({EVIL!r})")
    assert raised.value.message == EVIL
    assert_shown(str(raised.value))
    assert_shown(str(probing.ProbingError(EVIL, hint=EVIL)))
    assert_shown(str(probing.RemoteTimeoutError(EVIL, stack=EVIL)))


def test_long_tables_are_cut_where_they_are_shown_and_only_there() -> None:
    table = probing.Table(["number", "text"], [(number, "x" * 200) for number in range(1000)])
    assert (len(table), len(repr(table).splitlines())) == (1000, 62)
    assert repr(table).endswith("… and 940 rows more")
    assert max(map(len, repr(table).splitlines())) < 100
    assert table._repr_html_().count("<tr>") == 201
    assert "… and 800 rows more" in table._repr_html_()
    assert repr(probing.Table(["a", "b"], [])) == "a  b"


@pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_packages_that_are_not_there_are_not_needed(
    prepared: Probe, monkeypatch: pytest.MonkeyPatch, method: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for result in (prepared.backtrace(), prepared.threads()):
        with pytest.raises(
            ImportError, match=f"{package} is not installed here: pip install {package}, or use .columns"
        ):
            getattr(result, method)()


def test_pandas_and_arrow_take_it_all(prepared: Probe) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for result in (prepared.threads(), prepared.backtrace(all=True)):
        frame, arrow = result.to_pandas(), result.to_arrow()
        assert list(frame.columns) == arrow.column_names
        assert len(frame) == arrow.num_rows > 5
        assert frame["thread_id"][0] == arrow["thread_id"][0].as_py() == prepared.pid
