"""Six questions in SPARQL to the synthetic city, and the kind of chart for each answer."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from spark_offload.demo.city import CITY

PREFIXES: Final = f"""PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX city: <{CITY}>
"""
_OBSERVED: Final = """?o sosa:observedProperty city:{} ; sosa:hasFeatureOfInterest ?place ; sosa:hasResult ?r .
  ?r qudt:numericValue ?value ; time:hasTime/time:inXSDDateTimeStamp ?time"""


class DemoQuestion(NamedTuple):
    """A question whose answer is a chart."""

    title: str
    sparql: str
    """Query text without prefixes."""
    chart: Literal["lines", "bars"]
    x: str
    """Variable of the x axis."""
    y: str
    lines: str = ""
    """Variable that has a line for each of its values."""
    unit: str = ""


QUESTIONS: Final = (
    DemoQuestion(
        "How warm was each square in each month?",
        f"""SELECT ?place ?month (AVG(?value) AS ?mean) {{
  {_OBSERVED.format("temperature")}
}} GROUP BY ?place (MONTH(?time) AS ?month)""",
        "lines",
        "month",
        "mean",
        "place",
        "degrees Celsius",
    ),
    DemoQuestion(
        "Which highest temperature did each square have?",
        f"""SELECT ?place (MAX(?value) AS ?highest) {{
  {_OBSERVED.format("temperature")}
}} GROUP BY ?place""",
        "bars",
        "place",
        "highest",
        unit="degrees Celsius",
    ),
    DemoQuestion(
        "How loud is each square in each hour of the day?",
        f"""SELECT ?place ?hour (AVG(?value) AS ?mean) {{
  {_OBSERVED.format("noise")}
}} GROUP BY ?place (HOURS(?time) AS ?hour)""",
        "lines",
        "hour",
        "mean",
        "place",
        "decibel",
    ),
    DemoQuestion(
        "How many hours above 55 decibel did each square have between 22:00 and 06:00?",
        f"""SELECT ?place (COUNT(?o) AS ?hours) {{
  {_OBSERVED.format("noise")}
  FILTER(?value > 55 && (HOURS(?time) >= 22 || HOURS(?time) < 6))
}} GROUP BY ?place""",
        "bars",
        "place",
        "hours",
        unit="hours",
    ),
    DemoQuestion(
        "How often were the lamps of each street switched to full light in each month?",
        f"""SELECT ?place ?month (COUNT(?o) AS ?times) {{
  {_OBSERVED.format("dimming")}
  FILTER(?value = 100)
}} GROUP BY ?place (MONTH(?time) AS ?month)""",
        "lines",
        "month",
        "times",
        "place",
        "times",
    ),
    DemoQuestion(
        "Which thermometers have sent the fewest values?",
        """SELECT ?sensor (COUNT(?o) AS ?values) {
  ?o sosa:observedProperty city:temperature ; sosa:madeBySensor ?sensor
} GROUP BY ?sensor ORDER BY ?values LIMIT 5""",
        "bars",
        "sensor",
        "values",
        unit="values",
    ),
)
