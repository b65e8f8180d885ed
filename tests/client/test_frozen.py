"""Our frozen classes beside those of the standard library: whatever an app or a test may do with one, it sees no difference."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from types import ModuleType

import pytest

from deniable import frozen

SOURCE = '''
from __future__ import annotations
from typing import ClassVar
from {module} import dataclass, field

@dataclass(frozen=True, slots={slots})
class Base:
    """A class."""
    kind: ClassVar[str] = "base"
    first: int
    second: str = "two"
    many: dict = field(default_factory=dict, hash=False)
    hidden: int = field(default=4, repr=False, compare=False)
    late: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", self.first + 1)

@dataclass(frozen=True, slots={slots}, kw_only=True)
class Below(Base):
    third: int = 3
'''


def classes(module, slots):
    own = ModuleType(f"made_by_{module}")
    sys.modules[own.__name__] = own  # where the standard library looks up what `ClassVar` is
    exec(SOURCE.format(module=module, slots=slots), own.__dict__)
    return own.Base, own.Below


@pytest.fixture(params=[True, False], ids=["slots", "no slots"])
def pairs(request):
    return list(zip(classes("deniable.frozen", request.param), classes("dataclasses", request.param), strict=True))


def seen(class_):
    """Return what can be seen of a class and some of its objects."""
    one, same, other = class_(1), class_(first=1, hidden=9), class_(2, "x", many={"a": 1})
    changed = dataclasses.replace(other, second="y")
    return {
        "repr": repr(other),
        "equal": (one == same, one == other, one == 1, hash(one) == hash(same)),
        "fields": [(each.name, each.init, each.repr, each.compare, each.kw_only) for each in dataclasses.fields(class_)],
        "signature": [(each.name, each.kind) for each in inspect.signature(class_).parameters.values()],
        "asdict": dataclasses.asdict(other),
        "changed": (changed.second, changed.late, dataclasses.is_dataclass(class_)),
        "copied": (copy.copy(other) == other, copy.deepcopy(other).late),
        "slots": hasattr(one, "__dict__"),
        "match": class_.__match_args__,
        "kind": class_.kind,
        "doc": class_.__doc__ if class_.__name__ == "Base" else None,
    }


def test_they_are_seen_alike(pairs):
    for ours, theirs in pairs:
        assert seen(ours) == seen(theirs)


@pytest.mark.parametrize("wrong", [lambda c: c(), lambda c: c(1, other=2), lambda c: c(1, first=2), lambda c: c(1, late=2)])
def test_they_refuse_alike(pairs, wrong):
    for pair in pairs:
        for class_ in pair:
            with pytest.raises(TypeError):
                wrong(class_)


def test_nothing_can_be_changed(pairs):
    for pair in pairs:
        for class_ in pair:
            one = class_(1)
            with pytest.raises(dataclasses.FrozenInstanceError):
                one.first = 2
            with pytest.raises(dataclasses.FrozenInstanceError):
                del one.first
            assert one.first == 1


def test_a_subclass_of_the_standard_kind(pairs):
    """An app may extend one of ours by `dataclasses`."""
    ours = pairs[0][0]
    child = dataclasses.dataclass(frozen=True)(type("Child", (ours,), {"__annotations__": {"more": "int"}, "more": 5}))
    assert [each.name for each in dataclasses.fields(child)][-1] == "more"
    assert (child(1).late, child(1, more=7).more) == (2, 7)


def test_our_own_functions():
    base, _ = classes("deniable.frozen", slots=True)
    assert [each.name for each in frozen.fields(base)] == ["first", "second", "many", "hidden", "late"]
    assert frozen.replace(base(1), first=5).late == 6


def test_pickles():
    """One that a module has can be sent to another process."""
    from deniable.registry.tables import Budget
    from deniable.wire.layout import Layout

    for value in (Budget(per_month=3.0), Layout(2, 8, "bits")):
        assert pickle.loads(pickle.dumps(value)) == value
    assert Budget.__dataclass_fields__["per_month"].default == Budget().per_month


TUPLES = '''
from __future__ import annotations
from {module} import NamedTuple

class Point(NamedTuple):
    """A point."""
    x: int
    y: int = 2  # a default

    @property
    def sum(self) -> int:
        return self.x + self.y

    @classmethod
    def of(cls, x: int) -> Point:
        return cls(x)
'''


def test_named_tuples_are_seen_alike():
    """So are our named tuples, and making one compiles no annotation."""
    seen_of = {}
    for module in ("deniable.frozen", "typing"):
        own = ModuleType(f"tuples_of_{module}".replace(".", "_"))
        sys.modules[own.__name__] = own
        exec(TUPLES.format(module=module), own.__dict__)
        point = own.Point.of(1)
        seen_of[module] = {
            "values": (point, point.sum, repr(point), point._replace(y=5), pickle.loads(pickle.dumps(point)) == point),
            "class": (
                own.Point._fields,
                own.Point._field_defaults,
                own.Point.__doc__,
                own.Point.__bases__,
                own.Point.__qualname__,
            ),
            "module": own.Point.__module__ == own.__name__,
            "signature": str(inspect.signature(own.Point).parameters.keys()),
            "names": sorted(set(dir(own.Point)) - {"__orig_bases__", "__annotate_func__", "__annotations_cache__"}),
        }
    assert seen_of["deniable.frozen"] == seen_of["typing"]
