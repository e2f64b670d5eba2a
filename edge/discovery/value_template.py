"""Value templates of announcements: a small subset of their language, compiled to keys of a reading.

A template of the subset has one value, `value` or a member of `value_json`, with filters and arithmetic with numbers.
All others are refused with the reason. Nothing of a template is executed: the mapping language does the conversion.

Source of names and meanings: https://www.home-assistant.io/docs/configuration/templating (filters of the subset).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, DecimalException, Inexact
from typing import Final

_LONGEST: Final = 1000
_DEEPEST: Final = 16
"""Parentheses and path steps; bounds the recursion."""
_MOST_DIGITS: Final = 40
"""Digits of a number, as in mapping files."""
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[0-9]+(?:\.[0-9]+)?)
        |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
        |'(?P<single>[^'\\]*)' |"(?P<double>[^"\\]*)"
        |(?P<sign>[-+*/|().,\[\]])
    )""",
    re.VERBOSE,
)
_WHOLE: Final = re.compile(r"\s*\{\{-?(?P<body>(?:(?!\}\}|\{\{|\{%|\{\#).)*?)-?\}\}\s*", re.DOTALL)
_DIGITS: Final = 34
"""Digits of calculated numbers."""
DECIMALS: Final = 9
"""Decimals to which a value is rounded that was divided by a number such as 3, whose inverse has no end."""
_MORE: Final = Decimal(f"1.{'0' * 29}1")
"""Factor for a number without an end before its fraction is cut off. It is above the error of the calculation, with
which a whole number such as 3 / 3 would lose one, and below all differences of values.
"""


class UnsupportedTemplate(ValueError):
    """The template is outside of the subset; the text says why."""


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """A compiled template: where the value is, and its conversion."""

    path: tuple[str | int, ...] | None = None
    """Steps to the value in a JSON payload; None: the payload is a text, and the value."""
    scale: Decimal = Decimal(1)
    offset: Decimal = Decimal(0)
    round: int | str | None = None
    """Decimals of the result, or "down" without the fraction."""
    default: str | Decimal | bool | None = None
    """Value where the payload lacks it; None: without one, nothing is read."""
    case: str | None = None
    """ "lower" or "upper"."""
    numeric: bool = False
    """Whether the template makes a number of the value."""
    exact: bool = True
    """Whether scale and offset are exact."""

    @property
    def json_path(self) -> str | None:
        """The path in the mapping language. Raises `UnsupportedTemplate` for a name that it cannot express."""
        if self.path is None:
            return None
        return "".join(map(_step, self.path)) or "$"

    def keys(self) -> dict[str, object]:
        """Return the keys of a reading. Raises `UnsupportedTemplate` if they cannot express the template."""
        scale, rounding = self.scale, self.round
        if rounding is None and not self.exact:
            rounding = DECIMALS
        if rounding == "down" and not self.exact:
            if self.offset:
                raise UnsupportedTemplate("it cuts off the fraction of a sum with a quotient that has no end")
            scale = Context(prec=_DIGITS).multiply(scale, _MORE)
        found = {
            "path": self.json_path,
            "scale": None if scale == 1 else scale,
            "offset": self.offset or None,
            "round": rounding,
            "default": self.default,
            "case": self.case,
        }
        return {key: value for key, value in found.items() if value is not None}


def compile_template(text: str) -> ValueTemplate:
    """Compile a template. Raises `UnsupportedTemplate`."""
    if len(text) > _LONGEST:
        raise UnsupportedTemplate(f"it has more than {_LONGEST} characters")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        if "{%" in text:
            raise UnsupportedTemplate("it has a statement ({% ... %})")
        raise UnsupportedTemplate("it is not a single expression {{ ... }}")
    try:
        result = _Parser(whole["body"]).parse()
    except DecimalException:
        raise UnsupportedTemplate("its numbers cannot be calculated") from None
    if not isinstance(result, ValueTemplate):
        raise UnsupportedTemplate("it has no value of the message")
    return result


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    quote = '"' if '"' not in step else "'"
    if quote in step or not step:
        raise UnsupportedTemplate(f"the member {step!r} cannot be expressed")
    return f"[{quote}{step}{quote}]"


_Operand = ValueTemplate | Decimal


@dataclass(slots=True)
class _Parser:
    """Recursive descent. Filters bind more tightly than arithmetic, as in the language of the templates."""

    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)
    at: int = 0
    depth: int = 0
    context: Context = field(default_factory=lambda: Context(prec=_DIGITS))
    """Of all calculations: it notes whether one was inexact."""

    def parse(self) -> _Operand:
        position = 0
        body = self.text.rstrip()
        while position < len(body):
            match = _TOKEN.match(body, position)
            if match is None or match.lastgroup is None:
                raise UnsupportedTemplate(f"{body[position:].strip()[:20]!r} is not a part of the subset")
            kind = "text" if match.lastgroup in ("single", "double") else match.lastgroup
            self.tokens.append((kind, match[match.lastgroup]))
            position = match.end()
        result = self._sum()
        if self.at < len(self.tokens):
            raise UnsupportedTemplate(f"{self.tokens[self.at][1]!r} is not a part of the subset")
        if isinstance(result, ValueTemplate):
            return replace(result, exact=not self.context.flags[Inexact])
        return result

    def _peek(self, kind: str, *values: str) -> str | None:
        """Return the next token if it is of this kind, and one of these values if any are given."""
        if self.at >= len(self.tokens):
            return None
        found, value = self.tokens[self.at]
        return value if found == kind and (not values or value in values) else None

    def _take(self, kind: str, *values: str) -> str | None:
        found = self._peek(kind, *values)
        self.at += found is not None
        return found

    def _need(self, kind: str, *values: str) -> str:
        found = self._take(kind, *values)
        if found is None:
            rest = repr(self.tokens[self.at][1]) if self.at < len(self.tokens) else "its end"
            raise UnsupportedTemplate(f"{rest} is not expected there")
        return found

    def _sum(self) -> _Operand:
        left = self._product()
        while (sign := self._take("sign", "+", "-")) is not None:
            left = _calculated(self.context, left, sign, self._product())
        return left

    def _product(self) -> _Operand:
        left = self._operand()
        while (sign := self._take("sign", "*", "/")) is not None:
            left = _calculated(self.context, left, sign, self._operand())
        return left

    def _operand(self) -> _Operand:
        negative = self._take("sign", "-") is not None
        value = self._primary()
        if negative:
            if isinstance(value, ValueTemplate):
                raise UnsupportedTemplate("only numbers have a sign; write 0 - value")
            value = -value
        while self._take("sign", "|") is not None:
            value = self._filtered(value)
        return value

    def _primary(self) -> _Operand:
        number = self._take("number")
        if number is not None:
            return _number(number)
        if self._take("sign", "(") is not None:
            inner = self._inner()
            self._need("sign", ")")
            return inner
        name = self._need("name")
        if name == "value":
            return ValueTemplate()
        if name == "value_json":
            return ValueTemplate(path=tuple(self._path()))
        if name in ("float", "int") and self._take("sign", "(") is not None:
            return self._converted(name)
        raise UnsupportedTemplate(f"{name!r} is not a value of the message")

    def _inner(self) -> _Operand:
        """Return what is after a parenthesis."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnsupportedTemplate("it has too many parentheses")
        inner = self._sum()
        self.depth -= 1
        return inner

    def _converted(self, name: str) -> ValueTemplate:
        """Return the value of a function, which does the same as the filter of its name."""
        value = self._inner()
        arguments = []
        while self._take("sign", ")") is None:
            self._need("sign", ",")
            arguments.append(self._argument())
        if not isinstance(value, ValueTemplate):
            raise UnsupportedTemplate(f"it applies {name!r} to a number of its own")
        return _apply(value, name, arguments)

    def _path(self) -> list[str | int]:
        steps: list[str | int] = []
        while (sign := self._take("sign", ".", "[")) is not None:
            if sign == ".":
                index = self._take("number")
                steps.append(self._need("name") if index is None else _index(index))
            else:
                name = self._take("text")
                steps.append(name if name is not None else self._bracketed())
                self._need("sign", "]")
            if len(steps) > _DEEPEST:
                raise UnsupportedTemplate("its path is too long")
        if self._peek("sign", "("):
            raise UnsupportedTemplate(f"it calls the method {steps[-1] if steps else 'value_json'!r}")
        return steps

    def _bracketed(self) -> int:
        sign = -1 if self._take("sign", "-") is not None else 1
        return sign * _index(self._need("number"))

    def _filtered(self, value: _Operand) -> _Operand:
        name = self._need("name")
        arguments = self._arguments()
        if isinstance(value, Decimal):
            return _filtered_constant(value, name, arguments)
        return _apply(value, name, arguments)

    def _arguments(self) -> list[str | Decimal | bool | None]:
        found: list[str | Decimal | bool | None] = []
        if self._take("sign", "(") is None:
            return found
        while self._take("sign", ")") is None:
            if found:
                self._need("sign", ",")
            found.append(self._argument())
        return found

    def _argument(self) -> str | Decimal | bool | None:
        text = self._take("text")
        if text is not None:
            return text
        name = self._take("name")
        if name is not None:
            word = name.lower()
            if word not in ("true", "false", "none"):
                raise UnsupportedTemplate(f"{name!r} is not a constant")
            return None if word == "none" else word == "true"
        negative = self._take("sign", "-") is not None
        number = _number(self._need("number"))
        return -number if negative else number


def _index(text: str) -> int:
    if not text.isdigit() or len(text) > 6:
        raise UnsupportedTemplate(f"{text[:20]!r} is not the index of an item")
    return int(text)


def _number(text: str) -> Decimal:
    if len(text) > _MOST_DIGITS:
        raise UnsupportedTemplate("it has a number of too many digits")
    return Decimal(text)


def _calculated(context: Context, left: _Operand, sign: str, right: _Operand) -> _Operand:
    if isinstance(left, ValueTemplate) and isinstance(right, ValueTemplate):
        raise UnsupportedTemplate("it combines two values of the message")
    if isinstance(left, ValueTemplate):
        return _linear(context, left, sign, right)  # type: ignore[arg-type]
    if isinstance(right, ValueTemplate):
        if sign == "/":
            raise UnsupportedTemplate("it divides by a value of the message")
        if sign == "-":
            return _linear(context, _linear(context, right, "*", Decimal(-1)), "+", left)
        return _linear(context, right, sign, left)
    return _constant(context, left, sign, right)


def _constant(context: Context, left: Decimal, sign: str, right: Decimal) -> Decimal:
    try:
        if sign == "/":
            return _bounded(context.divide(left, right))
        return _bounded({"+": context.add, "-": context.subtract, "*": context.multiply}[sign](left, right))
    except DecimalException:
        raise UnsupportedTemplate("it divides by zero") from None


def _linear(context: Context, value: ValueTemplate, sign: str, number: Decimal) -> ValueTemplate:
    """Return `value sign number`."""
    if value.round is not None:
        raise UnsupportedTemplate("it calculates with a rounded value")
    if value.case is not None:
        raise UnsupportedTemplate("it calculates with a text")
    value = replace(value, numeric=True, offset=_constant(context, value.offset, sign, number))
    if sign in "+-":
        return value
    return replace(value, scale=_constant(context, value.scale, sign, number))


def _bounded(number: Decimal) -> Decimal:
    if number and abs(number.adjusted()) > _MOST_DIGITS:
        raise UnsupportedTemplate("it has a number of too many digits")
    return number


def _filtered_constant(number: Decimal, name: str, arguments: list[str | Decimal | bool | None]) -> Decimal:
    """Return a number of the template after a filter: in `value / 10 | round(1)`, the filter is that of the 10."""
    if name in ("float", "is_defined"):
        return number
    if name == "int":
        return Decimal(int(number))
    if name == "round" and len(arguments) < 2:
        return round(number, _places(arguments))
    raise UnsupportedTemplate(f"it applies the filter {name!r} to a number of its own")


def _places(arguments: list[str | Decimal | bool | None]) -> int:
    """Return the decimals of the filter `round`."""
    places = arguments[0] if arguments else Decimal(0)
    if not isinstance(places, Decimal) or places != int(places) or not -9 <= places <= 15:
        raise UnsupportedTemplate("its decimals for 'round' are not a number from -9 to 15")
    return int(places)


def _apply(value: ValueTemplate, name: str, arguments: list[str | Decimal | bool | None]) -> ValueTemplate:
    if name == "is_defined" and not arguments:
        return value
    if name in ("lower", "upper") and not arguments:
        if value.numeric:
            raise UnsupportedTemplate(f"it applies {name!r} to a number")
        return replace(value, case=name)
    if name == "default" and len(arguments) == 1:
        return _with_default(value, arguments[0])
    if name in ("float", "int") and len(arguments) < 2:
        if value.case is not None:
            raise UnsupportedTemplate(f"it applies {name!r} to a text")
        if arguments:
            value = _with_default(value, arguments[0])
        value = replace(value, numeric=True)
        return _rounded(value, "down") if name == "int" else value
    if name == "round" and len(arguments) < 2:
        return _rounded(replace(value, numeric=True), _places(arguments))
    raise UnsupportedTemplate(f"the filter {name!r} (with {len(arguments)} arguments) is not in the subset")


def _rounded(value: ValueTemplate, how: int | str) -> ValueTemplate:
    # Rounding again to fewer decimals is common: `| float | round(1)`, `| round(0) | int`.
    if value.round not in (None, how) and (value.round, how) != (0, "down"):
        raise UnsupportedTemplate("it rounds twice")
    return value if value.round == 0 else replace(value, round=how)


def _with_default(value: ValueTemplate, default: str | Decimal | bool | None) -> ValueTemplate:
    untouched = not (value.round or value.case) and value.scale == 1 and not value.offset
    if not untouched:
        raise UnsupportedTemplate("its default comes after a conversion")
    if value.path is None or default is None or default == "":
        return value  # a text always exists, and an empty value is not read
    return replace(value, default=default if value.default is None else value.default)
