"""The settings of one table as one caller sees them: option over table property over session over default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

from indextables.config.layer import Complaints, Layer, read_layer
from indextables.config.lookup import list_settings
from indextables.config.setting import Setting, SettingFamily

Source = Literal["option", "table property", "session", "default"]

T = TypeVar("T")


# A dataclass, since a Struct would show all of its fields to whoever prints with rich: these may be secret.
@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Typed values for every setting; immutable, and picklable for tasks that run elsewhere.

    Made by `resolve`. Everything in it has been checked, so that reading a value cannot fail.
    """

    options: Layer = field(default_factory=Layer)
    table_properties: Layer = field(default_factory=Layer)
    session: Layer = field(default_factory=Layer)

    @classmethod
    def resolve(
        cls,
        options: Mapping[str, object] | None = None,
        table_properties: Mapping[str, object] | None = None,
        session: Mapping[str, object] | None = None,
    ) -> Self:
        """Read the settings out of the three places; keys match in any case, foreign keys are passed over.

        An unknown key of ours warns (UnknownSettingWarning) and suggests the nearest one. A wrong value in a
        table property warns and is ignored, so that no property makes a table unreadable. Raises
        InvalidOptionError for a wrong value in an option or a session setting.
        """
        complaints = Complaints()
        settings = cls(
            read_layer("option", options or {}, complaints),
            read_layer("table property", table_properties or {}, complaints),
            read_layer("session setting", session or {}, complaints),
        )
        complaints.warn()
        return settings

    def with_table_properties(self, table_properties: Mapping[str, object]) -> Self:
        """Return these settings with another table's properties; what is wrong in them warns."""
        complaints = Complaints()
        layer = read_layer("table property", table_properties, complaints)
        complaints.warn()
        return replace(self, table_properties=layer)

    def __getitem__(self, setting: Setting[T]) -> T:
        key = setting.key
        for layer in (self.options, self.table_properties, self.session):
            if key in layer.values:
                value: T = layer.values[key]
                return value
        return setting.default

    def source(self, setting: Setting[Any]) -> Source:
        """Return where the value of a setting comes from."""
        return next((source for source, layer in self._layers() if setting.key in layer.values), "default")

    def family(self, family: SettingFamily) -> dict[str, str]:
        """Return what is set in a family: the free endings of its keys, and their texts.

        Endings that differ in case only are the same one. The values of a secret family are the caller's
        to keep secret.
        """
        merged: dict[str, tuple[str, str]] = {}
        for _, layer in reversed(self._layers()):
            for key, text in layer.family_values.items():
                if key.startswith(family.prefix):
                    ending = key.removeprefix(family.prefix)
                    merged[ending.lower()] = (ending, text)
        return dict(merged.values())

    def items(self) -> Iterator[tuple[Setting[Any], Any]]:
        """Iterate over every setting and its value, in the order of the documentation."""
        return ((setting, self[setting]) for setting in list_settings())

    def __repr__(self) -> str:
        shown = [
            f"{setting.key}={value!r}" for setting, value in self.items() if self.source(setting) != "default"
        ]
        family_keys = {key for _, layer in self._layers() for key in layer.family_values}
        shown.extend(f"{key}=…" for key in sorted(family_keys))
        return f"Settings({', '.join(shown)})"

    def _layers(self) -> tuple[tuple[Source, Layer], ...]:
        return (
            ("option", self.options),
            ("table property", self.table_properties),
            ("session", self.session),
        )
