"""The page for people who doubt: its code prints what it says, and its table has the exact figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deniable.mechanisms import choose

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "doubt.md").read_text("utf-8")
ROW = r"^\| (yes or no|eight answers), a share of (\d+)% \| (\d) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) reports \|$"
SIZES = {"yes or no": 2, "eight answers": 8}


def test_the_coins_cancel(capsys):
    """The code prints about the true share. Its standard error is 0.009: it fails less than once in a thousand million runs."""
    (code,) = re.findall(r"<!-- coins -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "doubt.md", "exec"), {})
    assert float(capsys.readouterr().out) == pytest.approx(0.3, abs=0.06)


def test_what_a_report_is_worth():
    """Exact answers and reports are those that an interval of two points needs, by the variance of the mechanism."""
    rows = re.findall(ROW, PAGE, re.MULTILINE)
    assert len(rows) == 4
    for question, percent, epsilon, exact, reports, worth in rows:
        share = int(percent) / 100
        spread = share * (1 - share)
        variance = choose(domain_size=SIZES[question], epsilon=epsilon).mechanism.variance(share, 1) + spread
        a_point = (1.96 / 0.02) ** 2
        assert float(exact.replace(",", "")) == pytest.approx(a_point * spread, rel=0.005)
        assert float(reports.replace(",", "")) == pytest.approx(a_point * variance, rel=0.005)
        assert float(worth) == pytest.approx(variance / spread, rel=0.02)
