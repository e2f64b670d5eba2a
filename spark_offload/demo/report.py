"""Report of the demonstration: one HTML file with charts, which needs no network."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from matplotlib.figure import Figure

from spark_offload.demo.city import CITY
from spark_offload.demo.questions import PREFIXES, DemoQuestion

_LITERAL: Final = re.compile(r'"(.*)"(\^\^<.*>|@.*)?', re.DOTALL)
_STYLE: Final = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
img { max-width: 100% } pre { overflow-x: auto; background: #f4f4f4; padding: 0.8rem }
.synthetic { background: #fff3cd; border: 1px solid #d39e00; padding: 0.8rem }
td, th { text-align: left; padding-right: 1.5rem }"""


class Answer(NamedTuple):
    """The answer of a question: solutions with terms in N-Triples."""

    question: DemoQuestion
    solutions: Sequence[Mapping[str, str | None]]
    seconds: float


def report(answers: Sequence[Answer], facts: Mapping[str, str]) -> str:
    """Return the HTML text. `facts` are shown in a table at the top."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items()
    )
    parts = "\n".join(_section(number, answer) for number, answer in enumerate(answers, 1))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>History of a synthetic city</title><style>{_STYLE}</style></head>
<body><h1>History of a synthetic city</h1>
<p class="synthetic"><strong>Synthetic data.</strong> <code>edge-history demo</code> computed all observations from a
formula with random numbers. No place, device or measurement is real.</p>
<table>{rows}</table>
{parts}
</body></html>
"""


def _section(number: int, answer: Answer) -> str:
    question = answer.question
    image = base64.b64encode(_png(answer)).decode()
    title = html.escape(question.title)
    return f"""<h2>{number}. {title}</h2>
<img alt="{title}" src="data:image/png;base64,{image}">
<details><summary>{len(answer.solutions):,} solutions in {answer.seconds:.1f} s: the query</summary>
<pre>{html.escape(PREFIXES + question.sparql)}</pre></details>"""


def _png(answer: Answer) -> bytes:
    question = answer.question
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots()
    if question.chart == "bars":
        points = sorted((_name(one[question.x]), _number(one[question.y])) for one in answer.solutions)
        axes.barh([name for name, _ in points], [value for _, value in points], color="#2a78b8")
        axes.invert_yaxis()
        axes.set_xlabel(question.unit)
    else:
        lines: dict[str, list[tuple[float, float]]] = {}
        for one in answer.solutions:
            point = (_number(one[question.x]), _number(one[question.y]))
            lines.setdefault(_name(one[question.lines]), []).append(point)
        for name, points_of_line in sorted(lines.items()):
            ordered = sorted(points_of_line)
            axes.plot([x for x, _ in ordered], [y for _, y in ordered], label=name, marker=".")
        axes.set_xlabel(question.x)
        axes.set_ylabel(question.unit)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    axes.set_axisbelow(True)
    axes.grid(visible=True, alpha=0.25)
    axes.set_title("synthetic data", loc="right", fontsize="small", color="#8a6d00")
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110)
    return target.getvalue()


def _number(term: str | None) -> float:
    found = _LITERAL.fullmatch(term or "")
    return float(found[1]) if found else float("nan")


def _name(term: str | None) -> str:
    return (term or "").strip("<>").removeprefix(CITY)
