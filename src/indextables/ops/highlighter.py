"""The words of a query in the texts of rows."""

from collections.abc import Sequence

import msgspec

from indextables.search.highlight import Span, highlight
from indextables.search.nodes import QueryNode
from indextables.search.parser import parse_query
from indextables.search.scope import SearchScope
from indextables.split.doc_mapping import DocMapping, FieldKind
from indextables.table import Snapshot


class Highlighter(msgspec.Struct, frozen=True):
    """Finds the words of a query in the texts of rows, for showing them to people."""

    query: QueryNode
    scope: SearchScope

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, fields: Sequence[str] = ()) -> "Highlighter":
        """A highlighter for a query, by the index settings of the table."""
        settings = snapshot.context.settings
        mapping = DocMapping.from_schema(snapshot.schema, snapshot.partition_columns, settings)
        return cls(parse_query(query), SearchScope(mapping, snapshot.schema, default_fields=tuple(fields)))

    def is_text(self, column: str) -> bool:
        """Whether a column holds words."""
        field = self.scope.mapping.find(column)
        return field is not None and field.kind is FieldKind.TEXT

    def default_columns(self) -> list[str]:
        """The columns in which words without a field are looked for."""
        return [target.field.name for target in self.scope.defaults()]

    def spans(self, column: str, text: str) -> tuple[Span, ...]:
        """The parts of a column's text that the query asks for."""
        return highlight(self.query, self.scope, column, text)
