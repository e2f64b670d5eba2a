"""What a backtest follows: a SPARQL query, a registered window query, or a rule. Its text decides which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.automation.errors import RuleError
from edge.automation.rule import Rule
from edge.automation.rule_file import read_rule
from edge.protocol.errors import ParsingFailed
from edge.streams.language import is_registration, parse
from edge.streams.model import WindowKind

Kind = Literal["query", "window", "rule"]


@dataclass(frozen=True, slots=True)
class Program:
    """A query or a rule."""

    kind: Kind
    text: str
    """SPARQL query, registration in C-SPARQL or RSP-QL, or the TOML of a rule."""
    name: str = "backtest"
    """Name of a rule."""

    @property
    def lead(self) -> int:
        """Microseconds before the begin whose values the windows contain at the begin; 0 without windows of time."""
        if self.kind != "window":
            return 0
        sizes = [each.definition.size for each in parse(self.text).windows if each.definition.kind is WindowKind.TIME]
        return max(sizes, default=0)

    def rule(self) -> Rule:
        """Return the rule of a program of this kind. Raises `ParsingFailed` with all faults."""
        try:
            return read_rule(self.text, self.name)
        except RuleError as error:
            raise ParsingFailed(str(error)) from None


def read_program(text: str, name: str = "backtest", *, is_rule: bool = False) -> Program:
    """Return the program of a text. Raises `ParsingFailed` for rules and windows; the engine checks SPARQL later.

    `is_rule`: the text is TOML. `name`: that of the rule.
    """
    if is_rule:
        program = Program("rule", text, name)
        program.rule()
        return program
    if is_registration(text):
        parse(text)
        return Program("window", text)
    return Program("query", text)
