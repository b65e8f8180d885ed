"""Frozen data classes that are made without generated source.

`dataclasses` takes longer to import than most of the SDK, and to make a class of its kind takes as long as to run many lines.
What is decorated here behaves as its frozen classes do, and `dataclasses.replace`, `fields` and `asdict` take it. The price is a
slower `__init__`, so what is made with each report is a named tuple instead. Those are without what `typing.NamedTuple` does with
annotations: it compiles each, and the first use of the compiler in a process takes longer than all our classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
    from typing import NamedTuple
else:
    from collections import namedtuple

    _MISSING = object()

    class _Tuples(type):
        """Makes named tuples of classes that are declared as those of `typing`."""

        def __new__(cls, name, bases, body):  # noqa: ARG004
            names = body["__annotations__"]
            defaults = [body.pop(each) for each in names if each in body]
            class_ = namedtuple(name, names, defaults=defaults, module=body.pop("__module__"))  # noqa: PYI024 - what it is for
            for member, value in body.items():
                setattr(class_, member, value)
            return class_

    NamedTuple = type.__new__(_Tuples, "NamedTuple", (), {})

    class _Field:
        __slots__ = ("compare", "default", "factory", "hash", "init", "kw_only", "name", "repr")

        def __init__(self, default, factory, init, repr, compare, hash):  # noqa: A002
            self.default, self.factory, self.init, self.repr, self.compare = default, factory, init, repr, compare
            self.hash = compare if hash is None else hash

        def standard(self):
            """Return the field as `dataclasses` has it."""
            import dataclasses  # noqa: PLC0415 - this is what is spared

            options = {name: getattr(self, name) for name in ("init", "repr", "compare", "hash", "kw_only")}
            defaults = {"default": self.default, "default_factory": self.factory}
            options |= {name: value for name, value in defaults.items() if value is not _MISSING}
            standard = dataclasses.field(**options)
            standard.name, standard._field_type = self.name, dataclasses._FIELD  # noqa: SLF001 - as its decorator does
            return standard

    def field(*, default=_MISSING, default_factory=_MISSING, init=True, repr=True, compare=True, hash=None):  # noqa: A002
        """Describe a field, as `dataclasses.field`."""
        return _Field(default, default_factory, init, repr, compare, hash)

    class _Late:
        """An attribute of the class that is made when somebody asks for it."""

        def __init__(self, make):
            self._make = make

        def __get__(self, instance, owner=None):
            return self._make()

    def fields(of):
        """Return the fields, as `dataclasses.fields`."""
        return tuple(of.__frozen_fields__.values())

    def replace(of, **changes):
        """Return a copy with other values, as `dataclasses.replace`."""
        for member in of.__frozen_fields__.values():
            if member.init:
                changes.setdefault(member.name, getattr(of, member.name))
        return type(of)(**changes)

    def dataclass(*, frozen, slots=False, kw_only=False, repr=True):  # noqa: A002
        """Decorate a class, as ``dataclasses.dataclass(frozen=True)``."""
        assert frozen  # noqa: S101 - there is no other kind
        return lambda cls: _decorated(cls, slots, kw_only, repr)

    def _own(cls, kw_only):
        """Return the fields that a class itself declares. All modules have their annotations as texts."""
        own = {}
        for name, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - `inspect` takes long to import
            if not annotation.startswith("ClassVar"):
                value = cls.__dict__.get(name, _MISSING)
                own[name] = value if type(value) is _Field else field(default=value)
                own[name].name, own[name].kw_only = name, kw_only
        return own

    def _decorated(cls, slots, kw_only, written):
        own, inherited = _own(cls, kw_only), {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= base.__dict__.get("__frozen_fields__", {})
        table = inherited | own
        body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
        for member in own.values():  # a slot or a missing value has no attribute of the class
            if slots or member.default is _MISSING:
                body.pop(member.name, None)
            else:
                body[member.name] = member.default
        if slots:
            body["__slots__"] = tuple(name for name in own if name not in inherited)
            body |= {"__getstate__": _get_state, "__setstate__": _set_state}
        body["__frozen_fields__"] = table
        body["__match_args__"] = tuple(each.name for each in table.values() if each.init and not each.kw_only)
        body["__dataclass_fields__"] = _Late(lambda: {name: each.standard() for name, each in table.items()})
        body["__dataclass_params__"] = _Late(_parameters)
        body["__signature__"] = _Late(lambda: _signature(table))
        methods = {"__init__": _init, "__eq__": _eq} | ({"__repr__": _repr} if written else {})
        body = methods | body
        if body.get("__hash__") is None:
            body["__hash__"] = _hash
        body |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if slots:
            return type(cls)(cls.__name__, cls.__bases__, body | {"__qualname__": cls.__qualname__})
        return _changed(cls, body)

    def _changed(cls, body):
        """Give a class another body."""
        for name in set(cls.__dict__) - set(body) - {"__dict__", "__weakref__"}:
            delattr(cls, name)
        for name, value in body.items():
            if cls.__dict__.get(name, _MISSING) is not value:
                setattr(cls, name, value)
        return cls

    def _init(self, /, *args, **options):
        table = self.__frozen_fields__
        places = self.__match_args__
        if len(args) > len(places):
            raise TypeError(f"{type(self).__name__} takes at most {len(places)} values by position; got {len(args)}")
        values = dict(zip(places, args))  # noqa: B905 - there may be more places
        for name in options:
            if name in values or name not in table or not table[name].init:
                raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}")
        values |= options
        put = object.__setattr__
        for name, member in table.items():
            if name in values:
                put(self, name, values[name])
            elif member.default is not _MISSING:
                put(self, name, member.default)
            elif member.factory is not _MISSING:
                put(self, name, member.factory())
            elif member.init:
                raise TypeError(f"{type(self).__name__} is missing the value {name!r}")
        finish = getattr(self, "__post_init__", None)
        if finish is not None:
            finish()

    def _repr(self):
        values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"

    def _eq(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self) if each.compare)

    def _hash(self):
        return hash(tuple(getattr(self, each.name) for each in fields(self) if each.hash))

    def _refuse_set(self, name, value):  # noqa: ARG001
        from dataclasses import FrozenInstanceError  # noqa: PLC0415

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(self, name):  # noqa: ARG001
        from dataclasses import FrozenInstanceError  # noqa: PLC0415

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _get_state(self):
        return [getattr(self, name) for name in self.__frozen_fields__]

    def _set_state(self, state):
        for name, value in zip(self.__frozen_fields__, state, strict=True):
            object.__setattr__(self, name, value)

    def _parameters():
        from dataclasses import _DataclassParams  # noqa: PLC0415

        names = {"init": True, "repr": True, "eq": True, "order": False, "unsafe_hash": False, "frozen": True}
        more = {"match_args": True, "kw_only": False, "slots": False, "weakref_slot": False}  # of 3.12
        known = getattr(_DataclassParams, "__slots__", names)
        return _DataclassParams(**{name: value for name, value in (names | more).items() if name in known})

    def _signature(table):
        from inspect import Parameter, Signature  # noqa: PLC0415

        return Signature(
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY if each.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=each.default if each.default is not _MISSING else Parameter.empty if each.factory is _MISSING else ...,
            )
            for each in sorted(table.values(), key=lambda field: field.kw_only)
            if each.init
        )


__all__ = ["NamedTuple", "dataclass", "field", "fields", "replace"]
