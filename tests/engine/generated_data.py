"""Random requests of INSERT DATA and DELETE DATA in all syntactic forms, valid and invalid."""

from __future__ import annotations

from engine_client import PREFIX
from hypothesis import strategies as st

NASTY = (
    "} ; DROP ALL #",
    "INSERT DATA {",
    "it is } here",
    "# no comment",
    "<http://x> {",
    "_:b",
    "((((",
    "\\u007D",
    "\\\\",
    '\\"',
    "\\'",
    "é😀",
    "",
    "^^",
    "@en--ltr",
)
WORDS = st.sampled_from(NASTY)
QUOTED = st.builds(
    lambda quotes, word: f"{quotes}{word}{quotes}", st.sampled_from(("'", '"', "'''", '"""')), WORDS
) | st.sampled_from(("'''it's } \n'' {'''", '"""a "quoted" {\r\n"" #"""', "'\"'", '"\'"'))
LITERALS = st.builds(
    str.__add__,
    QUOTED,
    st.sampled_from(("", "", "@en", "@EN-us", " @fr", "^^xsd:string", "^^<http://x/#>", "^^ xsd:anyURI")),
) | st.sampled_from(
    (
        *("1", "01", "-1", "+1", "1.50", ".5", "1e0", "1.0E+3", "-0.0", "true", "false", "'007'^^xsd:integer"),
        *("'1'^^xsd:byte", "'x'^^xsd:integer", "'2020-01-01T00:00:00+00:00'^^xsd:dateTimeStamp", "'1.0'^^xsd:decimal"),
    )
)
IRIS = st.sampled_from(
    (
        *("ex:a", "ex:b", "ex:c.d", "ex:a-b", "ex:a--b", "ex:", "ex:1", "ex:%7D", r"ex:x\,\#\'y", "ex:é", "ex:insert"),
        *("<http://example.org/a>", "<rel#f>", r"<http://example.org/\u00e9>", "<>", "xsd:a", "ex:a:b"),
    )
)
BLANKS = st.sampled_from(("_:x", "_:y", "_:x.1", "[]"))
GAPS = st.sampled_from((" ", " ", " ", " ", "\n", "\r\n\t", " # } ; { ' \" <\n", "#\r", "#'''\n"))


@st.composite
def blocks(draw: st.DrawFn, blanks: bool) -> str:
    """Return the text between the braces."""

    def node(depth: int = 0) -> str:
        if blanks and depth < 4 and draw(st.integers(0, 6)) == 0:
            nodes = " ".join(node(depth + 1) for _ in range(draw(st.integers(0, 2))))
            return draw(BLANKS | st.sampled_from((f"({nodes})", f"[ ex:p {node(depth + 1)} ; a ex:T ]")))
        return draw(IRIS | LITERALS)

    def triple() -> str:
        subject = draw(BLANKS) if blanks and draw(st.integers(0, 4)) == 0 else draw(IRIS)
        text = gap().join((subject, draw(IRIS | st.just("a")), node()))
        if draw(st.integers(0, 3)) == 0:
            text += gap() + ";" + gap() + f"ex:p {node()}{gap()},{gap()}{node()}"
        return text + gap()

    def gap() -> str:
        return draw(GAPS)

    def triples() -> str:
        text = (gap() + "." + gap()).join(triple() for _ in range(draw(st.integers(0, 3))))
        return text + gap() + ("." + gap() if text and draw(st.booleans()) else "")

    parts = [triples()]
    for _ in range(draw(st.integers(0, 2))):
        parts.append(f"{draw(st.sampled_from(('GRAPH', 'graph')))} {draw(IRIS)}{gap()}{{{triples()}}}{gap()}")
        parts.append(draw(st.sampled_from(("", "."))) + gap() + triples())
    return "".join(parts)


VERBS = (("INSERT", "DATA"), ("insert", "Data"), ("DELETE", "DATA"), ("Delete", "data"))
DECLARATIONS = ("PREFIX ex: <http://other.org/> ", "BASE <http://base.org/> ", "prefix\tex:#\n<sub/>\n", "")


@st.composite
def requests(draw: st.DrawFn) -> str:
    text = PREFIX
    for number in range(draw(st.integers(1, 4))):
        verb, word = draw(st.sampled_from(VERBS))
        separator = f"{draw(GAPS)};{draw(GAPS)}" + draw(st.sampled_from(DECLARATIONS)) if number else ""
        body = draw(blocks(blanks=verb[0] in "Ii"))
        if draw(st.integers(0, 8)):  # operations must not share the label of a blank node
            body = body.replace("_:", f"_:n{number}")
        text += f"{separator}{verb}{draw(GAPS)}{word}{draw(GAPS)}{{{draw(GAPS)}{body}}}"
    return text + draw(GAPS) + draw(st.sampled_from(("", "; ")))


PIECES = (
    *("{", "}", "[", "]", "(", ")", ";", ".", ",", "'", '"', "'''", '"""', "\\", "#", "\n", "<", ">", "<<", ">>", "?v"),
    *(
        "@en--ltr",
        "~",
        "{|",
        "|}",
        "^^",
        "_:b",
        "GRAPH",
        "WHERE",
        "INSERT DATA {",
        "; CLEAR ALL",
        "SERVICE",
        " 1 ",
        "\0",
    ),
    *("<<(", ")>>", "-", "@", "PREFIX", "ex:q", "''", '""', "WHERE {}", "\\u007D", "\\'", "/", "%", "*", "a"),
)


@st.composite
def spoiled(draw: st.DrawFn) -> str:
    """Return a text with a few pieces inserted or removed."""
    text = draw(requests())
    for _ in range(draw(st.sampled_from((1, 1, 2)))):
        at = draw(st.integers(len(PREFIX), len(text)))
        text = text[:at] + draw(st.sampled_from((*PIECES, ""))) + text[at + draw(st.sampled_from((0, 0, 1, 5))) :]
    return text
