"""Module-level mutable state: process-wide caches are declared in `_caching`, everything else is listed here.

The scan reads the source. It finds containers that start empty or that the module mutates, locks, context variables,
instances of our own classes that are not frozen, rebound globals, and memoised functions.
"""

import ast
from pathlib import Path

import indextables

SOURCE = Path(indextables.__file__).parent

ALLOWED = {
    "_caching._CACHES": "the list of process-wide caches itself",
    "cli.new_file._unfinished": "the files that this process deletes if it is interrupted",
    "cli.process._is_announced": "an interrupt is announced once in a process",
    "cli.process._print_lock": "guards that announcement",
    "cli.progress._displays": "what is drawn on the terminal of this process",
    "metrics._CREATION_LOCK": "guards the creation of OpenTelemetry instruments",
    "ops.after_commit._background": "the background thread of this process, not a cache",
    "ops.merge.jobs._registries": "the merge jobs that this process runs and reports, not a cache",
    "predicates.parser._lark": "the predicate grammar's parser, built from constants",
    "search.grammar._parser": "the query grammar's parser, built from constants",
    "spark.read.freeze_loaded_objects": "runs once in a process",
    "state.avro.decode._runtime": "whether the decoder's threads were lost in a fork",
    "statements.grammar._parser": "the statement grammar's parser, built from constants",
    "storage.native_runtime._runtime_pid": "which process started the threads of the stores' clients",
    "storage.remote._memory_lock": "guards the memory stores",
    "storage.remote._memory_stores": "the data of memory:// tables, not a cache",
}

# Instances of these classes are built at import and not changed afterwards, or only with what they report to.
ALLOWED_CLASSES = {
    "Column": "the columns of a result are frozen; a predicate's column of the same name is not at module level",
    "Definitions": "collects the settings of a section while config.registry is imported",
    "Instrument": "an OpenTelemetry instrument, created at its first use",
}

CACHE_DECORATORS = {"cache", "lru_cache", "cached"}
STATEFUL_CALLS = {
    *("dict", "list", "set", "bytearray", "deque", "defaultdict", "OrderedDict", "Counter", "count"),
    *("WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "LruCache", "ExpiringCache"),
    *("Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "local", "ContextVar"),
    *("ThreadPoolExecutor", "ProcessPoolExecutor", "Random"),
}
CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MUTATORS = {
    *("append", "extend", "insert", "remove", "pop", "popitem", "clear", "add", "discard", "update"),
    *("setdefault", "sort", "reverse", "appendleft", "popleft", "put"),
}


def test_module_level_mutable_state_is_a_declared_cache_or_listed_with_a_reason():
    assert _found() - set(ALLOWED) == set()


def test_the_list_names_nothing_that_is_gone():
    assert set(ALLOWED) - _found() == set()


def test_the_scan_finds_each_kind_of_state():
    source = """
import threading
EMPTY = {}
TYPED: list[int] = []
GROWN = {"a": 1}
GROWN["b"] = 2
EXTENDED = [1]
def grow(): EXTENDED.append(2)
TABLE = {"a": 1}
LOCK = threading.Lock()
class Box:
    def __init__(self): self.value = None
class Point(msgspec.Struct, frozen=True): ...
BOX = Box()
ORIGIN = Point()
pid = None
def enter():
    global pid
    pid = 1
@functools.lru_cache(maxsize=3)
def memo(x): ...
@cache
def single(): ...
if True:
    NESTED = set()
KNOWN = WeakKeyDictionary()
register_cache("known", "", "", KNOWN.clear)
DECLARED = shared_cache("declared", "", max_entries=1)
"""
    tree = ast.parse(source)
    assert set(_state_of(tree, _unfrozen_classes([tree]))) == {
        *("EMPTY", "TYPED", "GROWN", "EXTENDED", "LOCK", "BOX", "pid", "memo", "single", "NESTED"),
    }


def _found():
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    unfrozen = _unfrozen_classes(trees.values()) - set(ALLOWED_CLASSES)
    return {
        f"{'.'.join(path.relative_to(SOURCE).with_suffix('').parts)}.{name}"
        for path, tree in trees.items()
        for name in _state_of(tree, unfrozen)
    }


def _state_of(tree, unfrozen):
    mutated, rebound, declared = _mutated_names(tree), _rebound_names(tree), _declared_names(tree)
    unfrozen = unfrozen & _class_names(tree)
    for node in _module_level(tree):
        if isinstance(node, ast.FunctionDef):
            if any(_callee(decorator) in CACHE_DECORATORS for decorator in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                is_mutated = name in mutated and isinstance(node.value, CONTAINERS)
                if (
                    is_mutated or name in rebound or _is_stateful(node.value, unfrozen)
                ) and name not in declared:
                    yield name


def _module_level(node):
    """The statements that run at import, inside if, try and with blocks, too."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If | ast.Try | ast.With | ast.For):
            yield from _module_level(child)


def _is_stateful(value, unfrozen):
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(args=args) if _callee(value) in STATEFUL_CALLS:
            return not (_callee(value) in {"dict", "list", "set"} and args)
        case ast.Call():
            return _callee(value) in unfrozen
    return False


def _callee(node):
    match node:
        case ast.Call(func=function):
            return _callee(function)
        case ast.Subscript(value=value):
            return _callee(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _mutated_names(tree):
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if (
                attribute in MUTATORS
            ):
                names.add(name)
    return names


def _rebound_names(tree):
    return {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}


def _class_names(tree):
    """The names by which a module knows classes of ours: its own ones, and what it imports."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return own | {alias.asname or alias.name for node in imports for alias in node.names}


def _declared_names(tree):
    """Names that `shared_cache` made, or whose `clear` or the like was handed to `register_cache`."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                _callee(call) == "shared_cache"
            ):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call) if (
                _callee(call) == "shared_cache"
            ):
                names.add(name)
            case ast.Call(args=[*_, ast.Attribute(value=ast.Name(id=name))]) if (
                _callee(node) == "register_cache"
            ):
                names.add(name)
    return names


def _unfrozen_classes(trees):
    """Our classes whose instances can change: no frozen structs, enums, exceptions, protocols or named tuples."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {name for name, node in classes.items() if not _is_frozen(node, classes)}


def _is_frozen(node, classes):
    if any(keyword.arg == "frozen" for keyword in node.keywords):
        return True
    bases = {_callee(base) for base in node.bases}
    if bases & {"Enum", "StrEnum", "IntEnum", "NamedTuple", "Exception", "Protocol"}:
        return True
    if any(base in classes and _is_frozen(classes[base], classes) for base in bases):
        return True
    # A class that sets no attribute has no state of its own.
    return bases != {"Struct"} and not any(
        isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) for child in ast.walk(node)
    )
