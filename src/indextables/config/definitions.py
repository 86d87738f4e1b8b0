"""Short forms to define settings: one method per kind of value, one object per section."""

import msgspec

from indextables.config.kinds import Boolean, Choice, Hours, Integer, Names, Ratio, Size, Text, WholeDuration
from indextables.config.setting import PREFIX, Alias, Section, Setting, SettingFamily

_LONGEST_DELAY_MS = 24 * 60 * 60 * 1000
_LONGEST_SECONDS = 365 * 24 * 60 * 60
# A hundred years: "for ever", and still a date when it is counted back from now.
_LONGEST_HOURS = 100 * 365 * 24
_LARGEST_SIZE = 1024**5


class Definitions(msgspec.Struct, frozen=True):
    """Defines the settings of one section; keys are given without the common prefix."""

    section: Section

    def boolean(self, key: str, default: bool, line: str) -> Setting[bool]:
        """Define a switch."""
        return Setting(PREFIX + key, Boolean(), default, self.section, line)

    def integer(
        self,
        key: str,
        default: int,
        line: str,
        *,
        minimum: int,
        maximum: int | None = None,
        names: tuple[tuple[str, int], ...] = (),
        aliases: tuple[Alias, ...] = (),
    ) -> Setting[int]:
        """Define a whole number, some values of which may have names."""
        return Setting(PREFIX + key, Integer(names), default, self.section, line, minimum, maximum, aliases)

    def ratio(self, key: str, default: float, line: str) -> Setting[float]:
        """Define a share between nothing and all."""
        return Setting(PREFIX + key, Ratio(), default, self.section, line, minimum=0, maximum=1)

    def size(self, key: str, default: str, line: str, *, minimum: str) -> Setting[int]:
        """Define a number of bytes; default and minimum are written with their units."""
        kind = Size()
        smallest = kind.read(minimum)
        return Setting(PREFIX + key, kind, kind.read(default), self.section, line, smallest, _LARGEST_SIZE)

    def milliseconds(self, key: str, default: int, line: str) -> Setting[int]:
        """Define a delay or a time-out of up to a day."""
        kind = WholeDuration("milliseconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum=0, maximum=_LONGEST_DELAY_MS)

    def seconds(self, key: str, default: int, line: str, *, minimum: int) -> Setting[int]:
        """Define a time of up to a year."""
        kind = WholeDuration("seconds")
        return Setting(PREFIX + key, kind, default, self.section, line, minimum, _LONGEST_SECONDS)

    def hours(self, key: str, default: float, line: str, aliases: tuple[Alias, ...] = ()) -> Setting[float]:
        """Define a retention or an age of up to a hundred years."""
        return Setting(PREFIX + key, Hours(), float(default), self.section, line, 0, _LONGEST_HOURS, aliases)

    def choice(
        self, key: str, choices: tuple[str, ...], default: str, line: str, aliases: tuple[Alias, ...] = ()
    ) -> Setting[str]:
        """Define one word out of a few."""
        return Setting(PREFIX + key, Choice(choices), default, self.section, line, aliases=aliases)

    def text(self, key: str, default: str, line: str) -> Setting[str]:
        """Define a text, as it is."""
        return Setting(PREFIX + key, Text(), default, self.section, line)

    def names(self, key: str, line: str) -> Setting[tuple[str, ...]]:
        """Define a list of names, empty by default."""
        return Setting(PREFIX + key, Names(), (), self.section, line)

    def family(self, prefix: str, placeholder: str, line: str) -> SettingFamily:
        """Define keys that end in a free name."""
        return SettingFamily(PREFIX + prefix, placeholder, self.section, line)

    def credentials(self, prefix: str, names: tuple[str, ...], line: str) -> SettingFamily:
        """Define keys that end in a free name and whose values are never shown."""
        return SettingFamily(PREFIX + prefix, "name", self.section, line, names, secret=True)
