"""The randomness seed never changes."""

import subprocess
import sys

import pytest

from perdure.core.run.randomness import seed_of_run, siphash_1_3


def test_known_values() -> None:
    assert siphash_1_3(b"12345678") == 3785724242978802311
    assert siphash_1_3(b"perdure") == 5388534906303055366
    assert seed_of_run("run-id") == 13183365550469184546


@pytest.mark.skipif(
    sys.hash_info.algorithm != "siphash13", reason="this interpreter hashes bytes differently"
)
def test_the_interpreter_computes_the_same_with_a_key_of_zeros() -> None:
    samples = [b"x" * size for size in range(1, 40)]
    script = f"print([hash(sample) % 2**64 for sample in {samples!r}])"
    shown = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # The interpreter replaces -1, which it uses for errors, by -2.
    expected = [value if value != 2**64 - 1 else value - 1 for value in map(siphash_1_3, samples)]
    assert shown.strip() == repr(expected)
