"""Figures as people read them. GB is 1e9 bytes, GiB is 2**30."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
# A column that holds both a slow prefill's matmul and its sampling is best read in ms; only minutes are worth seconds.
_COLUMN_UNITS = ((100.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "us"))
_COUNT_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def column_unit(seconds: Sequence[float]) -> tuple[float, str]:
    """The unit of a column of times, in seconds and by name, chosen by the longest."""
    longest = max(seconds, default=0.0)
    return next((size, name) for limit, size, name in _COLUMN_UNITS if longest >= limit)


def decimals(largest: float, digits: int = 4) -> int:
    """Decimals that show ``digits`` digits of ``largest``, once it is rounded to them: 2 for 9.9996."""
    places = range(digits - 1, 0, -1)
    return next((place for place in places if round(largest, place) < 10.0 ** (digits - place)), 0)


def duration(seconds: float) -> str:
    """``1.234 ms``: four digits, in the unit that suits."""
    # What four digits would round to the next unit is written in that one: 1.000 s, not 1,000.0 ms.
    size, name = next((unit for unit in _TIME_UNITS if seconds >= unit[0] * 0.99995), _TIME_UNITS[-1])
    value = seconds / size
    return f"{value:,.{decimals(value)}f} {name}"


def error_limits(low: float, high: float) -> str:
    """``-9 % … +14 %``; nothing where it is not known."""
    return "" if isnan(low) or isnan(high) else f"{100 * low:+.0f} % … {100 * high:+.0f} %"


def error_band(low: float, high: float) -> str:
    """How far the truth may lie from a time: ``-9 % … +14 %, in four cases of five``."""
    limits = error_limits(low, high)
    return f"{limits}, in four cases of five" if limits else "no measurement near this"


def count(number: float) -> str:
    """``32.8 B``: three digits and K, M, B (1e9) or T (1e12)."""
    return _scaled(number, _COUNT_UNITS, "")


def byte_size(size: float) -> str:
    """``14.7 MB``: three digits, in powers of 1000."""
    return _scaled(size, _BYTE_UNITS, " bytes")


def percent(share: float) -> str:
    """``12.3%``, or ``<0.1%`` of what is there but too little to show."""
    text = f"{share:.1%}"
    return "<0.1%" if text == "0.0%" and share > 0.0 else text


def plural(number: float, noun: str) -> str:
    """``1 query``, ``2 queries``: a whole number with its noun."""
    if number == 1:
        return f"1 {noun}"
    plural_noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,.0f} {plural_noun}"


def _scaled(number: float, units: tuple[tuple[float, str], ...], none: str) -> str:
    for size, name in units:
        # As above, with three digits: 1.00 B, not 1000 M.
        if abs(number) >= size * 0.9995:
            value = number / size
            return f"{value:.{decimals(abs(value), 3)}f} {name}"
    return f"{number:,.0f}{none}"
