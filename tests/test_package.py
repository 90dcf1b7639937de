"""What `import perdure` promises: every name can be imported and is explained in the docs."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import perdure
from perdure import PerdureError

DOCS = Path(__file__).parents[1] / "docs"
GROUND = {"errors", "ids", "codec", "clock"}


def error_classes(base: type[PerdureError] = PerdureError) -> list[type[PerdureError]]:
    """All error classes of the package, `base` included."""
    found = [base]
    for cls in base.__subclasses__():
        if cls.__module__.startswith("perdure."):
            found += error_classes(cls)
    return found


def test_every_promised_name_can_be_imported() -> None:
    assert sorted(perdure.__all__) == sorted(set(perdure.__all__))
    assert set(perdure._HOMES) == set(perdure.__all__)
    for name in perdure.__all__:
        assert getattr(perdure, name).__name__ == name


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        perdure.Nonsense  # noqa: B018


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_promised_name_is_explained(name: str) -> None:
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert re.search(rf"\b{name}\b", pages)
    assert getattr(perdure, name).__doc__


def test_error_codes_are_distinct_and_well_formed() -> None:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    codes: dict[str, type[PerdureError]] = {}
    for cls in error_classes():
        assert "code" in vars(cls), f"{cls.__qualname__} has no code of its own"
        part = cls.__module__.split(".")[1]
        allowed = {"perdure", "caller", "world"} if part in GROUND else {part, "admin"}
        assert cls.code.partition(".")[0] in allowed
        assert re.fullmatch(r"[a-z]+(\.[a-z_]+)?", cls.code)
        assert codes.setdefault(cls.code, cls) is cls
