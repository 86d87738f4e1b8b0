"""Structs that threads decode are prepared when they are defined: msgspec crashes if two threads do it at once."""

import ast
import importlib
import inspect
import pkgutil
import re

import msgspec

import indextables
from indextables.log.actions import ACTION_NAMES


def decoded_structs() -> set[type]:
    """All Structs that the package decodes or converts to, except by a decoder that is made with its module."""
    found = set(ACTION_NAMES)
    for module in pkgutil.walk_packages(indextables.__path__, "indextables."):
        source = importlib.util.find_spec(module.name).loader.get_source(module.name)
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            if not function.startswith("msgspec.") or not function.endswith((".decode", ".convert")):
                continue
            typed = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            typed += node.args[1:2] if function.endswith(".convert") else []
            names = {name.id for value in typed for name in ast.walk(value) if isinstance(name, ast.Name)}
            kinds = [getattr(importlib.import_module(module.name), name, None) for name in names]
            found |= {kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)}
    return found


def test_every_struct_that_is_decoded_is_prepared_at_its_definition():
    structs = decoded_structs()
    assert {"ColdData", "_Manifest", "LastCheckpoint", "AddAction", "_Parsed"} <= {
        kind.__name__ for kind in structs
    }
    for struct in structs:
        source = inspect.getsource(inspect.getmodule(struct))
        prepared = rf"@decodable\nclass {struct.__name__}\(|^{struct.__name__} = decodable\("
        assert re.search(prepared, source, re.MULTILINE), f"{struct.__name__} is not decodable"
