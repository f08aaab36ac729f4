from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models import config_file
from tensor_cast.models.config_file import read_config_file


def refusal(file: Path) -> str:
    """The one sentence with which a file is refused."""
    with pytest.raises(ModelingError) as caught:
        read_config_file(file)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty."),
        (b" \n\t", "is empty."),
        (b"\xef\xbb\xbf", "is not valid JSON: Expecting value at line 1, column 1."),
        (b'{"a": 1,\n "b": }', "is not valid JSON: Expecting value at line 2, column 7."),
        (b'{"a": 1} {"b": 2}', "is not valid JSON: Extra data at line 1, column 10."),
        (b"null", "holds null, where a JSON object {...} is expected."),
        (b'"qwen3"', "holds a string, where a JSON object {...} is expected."),
        (b"[1, 2]", "holds a list, where a JSON object {...} is expected."),
        (b"[NaN]", "holds a list, where a JSON object {...} is expected."),
        (b"3.5", "holds a number, where a JSON object {...} is expected."),
        (b"true", "holds a boolean, where a JSON object {...} is expected."),
        (b'{"hidden_size": NaN}', "has $.hidden_size = nan: give a finite number."),
        (b'{"a": {"b": [1, -Infinity]}}', "has $.a.b[1] = -inf: give a finite number."),
        (b'{"a": 1e999}', "has $.a = inf: give a finite number."),
        (b'{"a": 1, "a": 2}', "cannot be read as JSON: the key 'a' occurs twice with different values."),
        (b'{"x": {"a": 1, "a": null}}', "cannot be read as JSON: the key 'a' occurs twice with different values."),
        (b'{"a": ' + b"[" * 100_000, "is nested too deeply to be a model's config."),
        (b'{"a": ' + b'{"a": ' * 50_000 + b"1" + b"}" * 50_001, "is nested too deeply to be a model's config."),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16 text: save it as UTF-8."),
        ('{"a": 1}'.encode("utf-16-be"), "is UTF-16 text: save it as UTF-8."),
        ('{"a": 1}'.encode("utf-32"), "is UTF-32 text: save it as UTF-8."),
        (b'{"a": "\xe9"}', "is not UTF-8 text (byte 7): give the config.json, not a binary file."),
        (
            b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
            "is not UTF-8 text (byte 0): give the config.json, not a binary file.",
        ),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00{}", "is a binary file, not JSON text."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 728\n",
            "is a Git LFS pointer: fetch the file itself with `git lfs pull`.",
        ),
    ],
)
def test_bad_file(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    assert refusal(tmp_path / "config.json") == f"The config file {file} {sentence}"


def test_integer_of_too_many_digits(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": ' + b"1" * 5000 + b"}")
    assert "cannot be read as JSON: Exceeds the limit" in refusal(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "config"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'\r\n {"a": 1}\r\n', {"a": 1}),
        ('{"name": "\u6a21\u578b"}'.encode(), {"name": "\u6a21\u578b"}),
        (b"{}", {}),
        (b'{"a": {"b": 1}, "a": {"b": 1}}', {"a": {"b": 1}}),
        # Nemotron-H publishes an unbounded Mamba time step.
        (b'{"time_step_limit": [0.0, Infinity]}', {"time_step_limit": [0.0, float("inf")]}),
    ],
)
def test_good_file(tmp_path: Path, content: bytes, config: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert read_config_file(tmp_path / "config.json") == config


def test_file_larger_than_a_config_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as sparse:
        sparse.truncate(100 * 2**20)
    assert refusal(tmp_path / "config.json") == (
        f"The config file {file} has 100 MiB, more than the 64 MiB that a model's config may have: "
        "give the config.json, not the weights."
    )


def test_size_limit_is_inclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "MAX_CONFIG_BYTES", 2)
    (tmp_path / "config.json").write_bytes(b"{}")
    assert read_config_file(tmp_path / "config.json") == {}
    (tmp_path / "config.json").write_bytes(b"{} ")
    assert "more than the" in refusal(tmp_path / "config.json")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}", encoding="utf-8")

    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    # chmod does not stop the superuser, whom tests may run as.
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert refusal(tmp_path / "config.json") == f"The config file {file} cannot be read: Permission denied."


def test_broken_link_and_directory_in_place_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.symlink_to(tmp_path / "gone.json")
    assert refusal(tmp_path / "config.json") == f"The config file {file} does not exist."
    file.unlink()
    file.mkdir()
    assert refusal(tmp_path / "config.json") == f"The config file {file} is not a regular file."
