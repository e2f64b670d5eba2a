"""Front ends of two languages for continuous queries over RDF streams: C-SPARQL and RSP-QL.

C-SPARQL follows Barbieri, Braga, Ceri, Della Valle and Grossniklaus, "Querying RDF Streams with C-SPARQL" (SIGMOD
Record 39(1), 2010). RSP-QL follows Dell'Aglio, Della Valle, Calbimonte and Corcho, "RSP-QL Semantics" (IJSWIS 10(4),
2014), in the syntax of the W3C community group on RDF Stream Processing. The first keywords tell them apart.

The syntax in EBNF. Keywords are case-insensitive; Prologue, Iri, String and Integer are those of SPARQL 1.1, and
SparqlQuery is a SPARQL 1.1 query of any form without its prologue::

    ContinuousQuery ::= Prologue 'REGISTER' ( CSparql | RspQl )

    CSparql   ::= ( 'QUERY' | 'STREAM' ) Name ( ( 'COMPUTED' | 'COMPUTE' )? 'EVERY' Duration )? 'AS'
                  Prologue SparqlQuery
    Name      ::= Identifier | Iri
    From      ::= 'FROM' 'NAMED'? 'STREAM' Iri Window

    RspQl     ::= ( 'RSTREAM' | 'ISTREAM' | 'DSTREAM' ) Iri 'AS' Prologue SparqlQuery
    From      ::= 'FROM' 'NAMED' 'WINDOW' Iri 'ON' 'STREAM'? Iri Window ( 'REPORT'? Report )?
    Pattern   ::= 'WINDOW' Iri Group
    Report    ::= 'ON' 'CLOSE' | 'ON' 'CHANGE' | 'NON' '-'? 'EMPTY' | 'EVERY' Duration

    Window    ::= '[' ( Time | Count | Landmark | Session ) ']'
    Time      ::= 'RANGE' Duration ( 'STEP' Duration | 'TUMBLING' )? ( 'START' DateTime )?
    Count     ::= ( 'ELEMENTS' | 'RANGE'? 'TRIPLES' ) Integer ( 'STEP' Integer | 'TUMBLING' )?
    Landmark  ::= 'LANDMARK' ( DateTime | 'NOW' ) 'STEP' Duration
    Session   ::= 'SESSION' Duration
    Duration  ::= xsd:duration of weeks, days, hours, minutes and seconds | Number ( 'ms' | 's' | 'm' | 'h' | 'd' )
    DateTime  ::= String, an xsd:dateTime with a time zone ( '^^' Iri )?

From stands where SPARQL has its FROM clauses, which may stand next to it. Pattern is a graph pattern. ELEMENTS,
LANDMARK, SESSION, START and Report are extensions of this gateway.

- `RANGE PT10S` alone is a tumbling window. `ELEMENTS 10` and `TRIPLES 10` alone slide by 1.
- A size in triples selects whole elements.
- START is a time at which a time window ends. Without it, `t0` of `parse` is.
- FROM STREAM puts a window into the default graph, FROM NAMED STREAM into the graph with the stream's IRI. With
  EVERY, windows with another STEP report periodically. All reports have all rows (RSTREAM).
- Each window of RSP-QL is used in WHERE, by its name. GRAPH with a variable ranges over windows, too.
- Durations last from 1 millisecond to 10 years.
"""

from edge.streams.language.description import describe
from edge.streams.language.parsing import BASE, MAX_TEXT, is_registration, parse
from edge.streams.language.window_clause import brackets_text, report_text

__all__ = ["BASE", "MAX_TEXT", "brackets_text", "describe", "is_registration", "parse", "report_text"]
